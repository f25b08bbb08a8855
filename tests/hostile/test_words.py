"""What requests name becomes words of pip, uv and apt on the controller, and lines of files: never their options."""

import subprocess
import sys
from pathlib import Path

import pytest
from ansible.module_utils.trainyard.bundle import controller, repositories, systems, wheels
from ansible.module_utils.trainyard.bundle.site_lock import Wanted
from ansible.module_utils.trainyard.cluster import session_environment
from ansible.module_utils.trainyard.software import apt_sources, words
from ansible.module_utils.trainyard.software.requirements import PinError, parse
from ansible.module_utils.trainyard_controller.bundle import deb_locking, file_locking, file_sources, site_locking
from ansible.module_utils.trainyard_node.machine import commands
from ansible.module_utils.trainyard_node.machine.tree import Outcome
from ansible.module_utils.trainyard_node.software.can_install import can_install

PROJECT = Path(__file__).resolve().parents[2]
SYSTEM = systems.named("debian-12-x86_64")
TAGS = "--python-version 3.11 --implementation cp --abi cp311 --platform manylinux2014_x86_64"
SOURCE = {"what": "the digits", "variables": "dataset_index_url", "package": "scikit-learn==1.7.2", "platform": TAGS,
          "cached": "/nowhere", "index_url": "", "sha256": 64 * "a", "url": ""}  # fmt: skip


@pytest.fixture
def started(monkeypatch):
    """Every program that the controller would start."""
    calls = []

    def run(argv, *_, **settings):
        calls.append([*argv])
        return Outcome(1, "")

    def started_by(argv, **settings):
        calls.append([*argv])
        return subprocess.CompletedProcess(argv, 1, "", "")

    monkeypatch.setattr(commands, "run", run)
    monkeypatch.setattr(subprocess, "run", started_by)
    return calls


WRONG = [
    {"platform": f"{TAGS} --log=/tmp/owned"}, {"platform": "--find-links=http://evil/ --no-index"},
    {"platform": f"{TAGS}\n--log=/x"}, {"platform": "--platform"}, {"platform": "--platform -r"}, {"platform": "x"},
    {"platform": "--platform=a --abi=$(id)"}, {"platform": "--python-version 3.11 evil==1"}, {"platform": "--abi\tx"},
    {"package": "-r/etc/passwd"}, {"package": "--log=/x==1"}, {"package": "a==1 --log=/x"}, {"package": "a\n==1"},
    {"package": "a"}, {"package": "https://evil/a-1.whl"}, {"package": "a==1\n-r x"}, {"package": ""},
    {"index_url": "http://a/ --log=/x"}, {"index_url": "-r"}, {"index_url": "http://a/\nx"}, {"index_url": "/a"},
    {"index_url": "gopher://a/"}, {"index_url": "http://a/\x1b[2J"},
]  # fmt: skip


@pytest.mark.parametrize("change", WRONG)
def test_what_the_controllers_pip_looks_for_is_no_option(started, change):
    (found,) = file_sources.source_findings([{**SOURCE, **change}])
    assert found.check == "source of the digits" and "dataset_index_url" in found.action and not started
    _, (found,) = file_locking.resolve([{**SOURCE, **change}], print)
    assert found.check == "the digits" and not started


def test_what_roles_ask_for_reaches_pip(started):
    assert file_sources.source_findings([{**SOURCE, "index_url": "https://me:x@index.example.org/simple"}]) == []
    file_locking.resolve([SOURCE], print)
    for call in started:
        assert call[0] == sys.executable
        assert [word for word in call if word.startswith("--pl")] == ["--platform=manylinux2014_x86_64"]
    assert len(started) == 2 and started[1][-2:] == ["--", "scikit-learn==1.7.2"]


@pytest.mark.parametrize("given", [
    {"packages": ["a==1", "-r/etc/passwd"]}, {"packages": ["a==1\n--index-url http://evil/"]},
    {"packages": ["a==1 --config-settings x"]}, {"constraints": ["-r /etc/passwd"]}, {"constraints": ["a==1\n-r x"]},
    {"constraints": ["--find-links=http://evil/"]}, {"constraints": ["a==1 -r x"]}, {"index_url": "http://a/ http://b/"},
    {"extra_index_urls": ["http://a/", "--log=/x"]}, {"find_links": ["/a b"]}, {"find_links": [""]},
])  # fmt: skip
def test_what_an_environment_names_reaches_neither_uv_nor_pip(started, given):
    environment = {"path": "/x/pytorch", "interpreter": "python3.11", "packages": ["a==1"], **given}
    found = site_locking.resolve({SYSTEM: Wanted(environments={"pytorch": environment})}, {}, print)
    assert [each.check for each in found.findings] == ["pytorch on debian-12-x86_64"]
    assert [call for call in started if "compile" in call] == []


@pytest.mark.parametrize("given", [
    {"constraints": ["--find-links=http://evil/"]}, {"index_url": "http://a/ http://b/"}, {"find_links": ["/a b"]},
    {"packages": ["a\n==1"]},
])  # fmt: skip
def test_so_it_is_on_a_node(given, tmp_path):
    own = {"path": str(tmp_path / "venv"), "interpreter": "/usr/bin/python3", "packages": ["a==1"], **given}
    part = {"environment": own, "prefix": "pytorch", "manage_system": True}
    assert [each["check"] for each in can_install(requests={"pytorch": part})["findings"]] == ["packages of pytorch"]


def test_everything_that_this_project_locks_is_a_requirement():
    texts = {path.stem: path.read_text() for path in (PROJECT / "requirements").glob("*.txt")}
    lines = controller.requirements(texts, texts)
    for path in PROJECT.glob("roles/*/files/*_lock.txt"):
        lines += wheels.constraints({"packages": [], "lock": path.read_text()})
    assert len(lines) > 100 and [words.requirement(line) for line in lines] == lines


@pytest.mark.parametrize("text", [
    "numpy", "numpy<3", "numpy >=1.2, <2", "a[b,c]==1", "a @ https://x/a-1.whl#sha256=0",
    "a==1 ; python_version < '3.11'",
    "a==1;sys_platform == 'linux' and (platform_machine != \"x86_64\")", "a==1.*", "a===1", "a~=1.4",
])  # fmt: skip
def test_constraints_that_pip_takes_stay(text):
    assert words.requirement(text) == text


@pytest.mark.parametrize("text", ["a\n==1", "a==\n1", "a==1\n", "a[\n]==1", "a==1 ;\npython_version < '3'", "a==1\v"])
def test_a_pin_is_one_line(text):
    with pytest.raises(PinError):
        parse(f"{text}\n#" if text.endswith(("\n", "\v")) else text, (3, 11))


RECORD = {"provider": "network_repo", "uri": "https://repo.example.org/debian12/x86_64", "label": "NVIDIA CUDA",
          "key_url": "file:///nowhere", "key_file": "", "fingerprints": [40 * "A"], "components": [],
          "origins": ["Debian"], "packages": [{"name": "libnccl2", "version": "1"}], "driver": {}}  # fmt: skip


@pytest.mark.parametrize(("change", "mirror"), [
    ({"uri": "https://a/ ./\ndeb [trusted=yes] http://evil"}, {}), ({"uri": "https://a [trusted=yes]"}, {}),
    ({"label": "x\nPin: release *"}, {}), ({"provider": "distro", "components": ["main\ndeb http://evil x"]}, {}),
    ({"packages": [{"name": "-oDir::Bin::methods=/x", "version": "1"}]}, {}),
    ({"packages": [], "driver": {"roots": [["--x"]], "optional": [], "pinning": [], "version": "", "branch": ""}}, {}),
    ({}, {"main": "http://a/ x main\ndeb http://evil"}), ({}, {"main": ""}),
])  # fmt: skip
def test_what_a_repository_names_is_one_word_of_its_line(started, monkeypatch, change, mirror):
    monkeypatch.setattr(deb_locking.shutil, "which", lambda _: "/usr/bin/apt-get")
    wanted = Wanted({"rsync"}, further=[[{**RECORD, **change}]])
    with pytest.raises(deb_locking.NotResolvedError) as error:
        deb_locking.resolve(SYSTEM, wanted, {"main": "http://mirror.example.org/debian", **mirror})
    facts = ("expected one word", "no name of a package", "expected one line without commas")
    assert any(fact in str(error.value) for fact in facts)
    assert not [call for call in started if "indextargets" not in call]
    # So it is where a host adds it to its own apt.
    if "uri" in change or "label" in change:
        with pytest.raises(words.WordError):
            apt_sources.network_source({**RECORD, **change}["uri"], "/k", "x")
            apt_sources.network_preferences({**RECORD, **change}["label"], "x")


@pytest.mark.parametrize("names", [{"-oAPT::x=y"}, {"a b"}, {"./x.deb"}, {"a\n"}])
def test_a_package_of_the_system_is_no_option(started, monkeypatch, names):
    monkeypatch.setattr(deb_locking.shutil, "which", lambda _: "/usr/bin/apt-get")
    for wanted in (Wanted(names), Wanted(optional=names)):
        with pytest.raises(deb_locking.NotResolvedError, match="no name of a package"):
            deb_locking.resolve(SYSTEM, wanted, {"main": "http://mirror.example.org/debian"})
    assert repositories.names({"name": "a"}) == ["a"] and started == []


@pytest.mark.parametrize("piece", [
    {"variables": {"A": "x\nPermitRootLogin yes"}}, {"variables": {"A B": "x"}}, {"variables": {"A": 'x" B="y'}},
    {"path": ["/a\nX"]}, {"libraries": ['/a"b']}, {"variables": {"A=B\n": "x"}},
])  # fmt: skip
def test_a_variable_of_a_session_stays_one_variable(piece):
    with pytest.raises(ValueError, match="may not stand in SetEnv"):
        session_environment.rewrite("", "train", "openmpi", piece)
