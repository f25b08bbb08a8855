"""How the controller resolves packages of NVIDIA's repository: simulated apt programs that record their calls."""

import os
import sys
from pathlib import Path

import pytest
from ansible.module_utils.trainyard.bundle import systems
from ansible.module_utils.trainyard.bundle.site_lock import Wanted
from ansible.module_utils.trainyard_controller.bundle import deb_locking

SYSTEM = systems.named("debian-12-x86_64")
URI = "http://v.example.org/debian12/x86_64"
FAKES = Path(__file__).resolve().parents[2] / "fixtures/nvidia_repository"
APT_GET = """#!/bin/sh
case "$1" in
    indextargets)
        printf '%s\\n' 'Component: main' 'Origin: Debian' 'Release: bookworm' 'Repo-URI: http://m.example.org/debian/'
        ;;
    update)
        etc=$(dirname "$APT_CONFIG")/etc
        cat "$etc/sources.list" "$etc"/preferences.d/*.pref >>"$CALLS"
        [ ! -e "$CALLS.broken" ] || { echo "E: Failed http://v.example.org/debian12/x86_64/Packages"; exit 100; }
        ;;
    install)
        cat "$(dirname "$APT_CONFIG")"/etc/preferences.d/driver*.pref >>"$CALLS" 2>/dev/null
        echo "$*" >>"$CALLS"
        echo "'http://v.example.org/$CALLS.deb' x_$(grep -c ^install "$CALLS")_amd64.deb 1 SHA256:SUM"
        ;;
esac
""".replace("SUM", 32 * "ab")
APT_CACHE = """#!/bin/sh
if [ "$1" = policy ]; then
    printf '%s\\n' 'Package files:' \\
        ' 500 http://v.example.org/debian12/x86_64  Packages' '     release l=NVIDIA CUDA,o=NVIDIA' \\
        ' 500 http://m.example.org/debian bookworm/main amd64 Packages' '     release o=Debian,l=Debian'
    exit
fi
shift
for name in "$@"; do
    case $name in
        libnccl2) versions='2.28.9-1+cuda13.0 2.21.5-1+cuda12.4' ;;
        cuda-drivers | nvidia-fabricmanager-550) versions='560.35.03-1 550.54.15-1' ;;
        linux-headers-6*) echo "$name | 6.1 | http://m.example.org/debian bookworm/main amd64 Packages"; continue ;;
        *) continue ;;
    esac
    for version in $versions; do echo "$name | $version | http://v.example.org/debian12/x86_64  Packages"; done
done
"""


@pytest.fixture
def key(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(FAKES))
    monkeypatch.delitem(sys.modules, "signing", raising=False)
    import signing

    made = signing.Key(tmp_path / "key.pem", "vendor (fake) <vendor@example.org>")
    (tmp_path / "key.asc").write_text(made.public())
    return made


@pytest.fixture
def record(key, tmp_path):
    return {
        "provider": "network_repo",
        "uri": URI,
        "label": "NVIDIA CUDA",
        "key_url": f"file://{tmp_path}/key.asc",
        "key_file": "",
        "fingerprints": [key.fingerprint],
        "components": [],
        "origins": ["Debian"],
        "packages": [{"name": "libnccl2", "version": "2.21.5"}],
        "driver": {},
    }


@pytest.fixture
def calls(tmp_path, monkeypatch):
    for name, text in {"apt-get": APT_GET, "apt-cache": APT_CACHE}.items():
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("CALLS", str(tmp_path / "calls"))
    return tmp_path / "calls"


def resolve(*kinds, optional=()):
    return deb_locking.resolve(SYSTEM, Wanted({"rsync"}, {}, [list(each) for each in kinds], set(optional)), {})


def failures(*kinds):
    with pytest.raises(deb_locking.NotResolvedError) as raised:
        resolve(*kinds)
    return [(each.check, each.found) for each in raised.value.findings]


def test_packages_of_the_repository_are_resolved_with_those_of_the_system(record, calls):
    by_file = {**record, "key_url": "", "key_file": record["key_url"].removeprefix("file://")}
    for given in (record, by_file):
        calls.unlink(missing_ok=True)
        resolve([given])
        text = calls.read_text()
        assert text.endswith("-- libnccl2=2.21.5-1+cuda12.4 rsync\n")
        assert f".asc] {URI}/ /\n" in text and "trusted" not in text
        # As the role pins it on nodes.
        assert "Pin: release l=NVIDIA CUDA\nPin-Priority: 100" in text


def test_a_driver_gets_one_version_of_all_that_belongs_to_it(record, calls):
    driver = {"roots": [["cuda-drivers-550", "cuda-drivers"]], "pinning": [], "version": "", "branch": "550",
              "optional": [["nvidia-fabricmanager-550"], ["nvidia-imex-550"]]}  # fmt: skip
    resolve([{**record, "packages": [], "driver": driver}])
    text = calls.read_text()
    assert text.endswith("-- cuda-drivers=550.54.15-1 nvidia-fabricmanager-550=550.54.15-1 rsync\n")
    assert "libcuda1" in text and "Pin: version 550.54.15-*\nPin-Priority: 1100" in text


def test_each_kind_of_host_is_resolved_by_itself(record, calls):
    newer = {**record, "packages": [{"name": "libnccl2", "version": "2.28.9"}]}
    found, _ = resolve([record], [newer])
    assert [each.version for each in found] == ["1", "2"]


def test_components_of_the_distribution_go_to_hosts_that_want_them_alone(record, calls):
    resolve([record])
    assert "non-free" not in calls.read_text()
    distro = {**record, "provider": "distro", "components": ["non-free"]}
    # Those of the vendor's repository do not count.
    assert failures([distro])[0] == ("package libnccl2", "the distribution (Debian) offers none")
    text = calls.read_text()
    assert "bookworm main non-free\n" in text and text.count(URI) == 1


def test_packages_that_the_system_may_lack(calls):
    _, absent = resolve(optional=["linux-headers-6.1.0-9-amd64", "linux-headers-5.0"])
    assert [each["what"] for each in absent] == ["linux-headers-5.0"]
    assert "-- linux-headers-6.1.0-9-amd64 rsync\n" in calls.read_text()


def test_all_versions_that_are_not_offered_are_found_at_once(record, calls):
    packages = [{"name": "libnccl2", "version": "9.9"}, {"names": ["libcudnn8"], "version": "", "begins": ""}]
    assert [check for check, _ in failures([{**record, "packages": packages}])] == [
        "package libnccl2",
        "package libcudnn8",
    ]
    assert "install" not in calls.read_text()


def test_a_key_or_a_label_of_another_is_refused(record, calls):
    assert failures([{**record, "fingerprints": [40 * "A"]}])[0][0] == "key of the repository"
    assert failures([{**record, "key_url": "ftp://x"}]) == [
        ("key of the repository", "ftp://x: no address that can be read")
    ]
    assert not calls.exists()
    assert failures([{**record, "label": "Other"}]) == [("package repository", f"{URI} has another label")]


def test_a_repository_that_does_not_answer_is_named(record, calls):
    Path(f"{calls}.broken").touch()
    ((check, found),) = failures([record])
    assert check == "package repository" and found.startswith(f"{URI}: ")
    # Its errors are not those of the distribution's mirror.
    ((check, _),) = failures([{**record, "uri": "http://w.example.org/debian12/x86_64"}])
    assert check == f"packages of {SYSTEM}"
