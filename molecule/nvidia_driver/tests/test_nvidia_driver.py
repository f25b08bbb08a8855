"""The role nvidia_driver: one exact version with its module, up and down; or the reason, and the node as before.

NVIDIA's repository, its installer and dkms are fakes; apt, dpkg, systemd, the role and the job are real.
"""

import json

import pytest

OLD, NEW = "550.54.15", "550.127.08"
RUNFILE = "470.103.01"
KERNEL = "6.1.0-99-replay"
PARTS = {
    "cuda-drivers-550",
    "libcuda1",
    "libnvidia-cfg1",
    "libnvidia-ml1",
    "libnvidia-ptxjitcompiler1",
    "nvidia-driver",
    "nvidia-driver-libs",
    "nvidia-fabricmanager-550",
    "nvidia-kernel-dkms",
    "nvidia-kernel-support",
    "nvidia-modprobe",
    "nvidia-persistenced",
    "nvidia-smi",
}
VENDORS = {
    "nvidia_driver_provider": "runfile",
    "nvidia_driver_version": RUNFILE,
    "nvidia_driver_fabric_manager": "false",
}
INSTALLER = "/var/lib/trainyard-root/nvidia-driver"


@pytest.fixture(scope="module")
def fake(first, node_names, node_vars):
    """Return the variables by which the role finds the fake of NVIDIA's repository, which converge.yml has put up."""
    fingerprints = json.loads(first.check_output("cat /srv/nvidia-fake/fingerprints.json"))
    return {
        "nvidia_repository_url": f"http://{node_vars[node_names[0]]['ansible_host']}:8099",
        "nvidia_repository_key_fingerprint": fingerprints["nvidia"],
    }


@pytest.fixture(scope="module")
def run(run_playbook, last_name, fake):
    """Run the role on the last node, or where a further --limit says."""
    return lambda *arguments, **given: run_playbook(
        "changed.yml", "--limit", last_name, *arguments, **{**fake, **given}
    )


def parts(host):
    """Versions of the driver's packages, whether they are held, by name."""
    lines = host.check_output("dpkg-query -W -f '${Package} ${Version} ${db:Status-Abbrev}\\n'").splitlines()
    found = [line.split() for line in lines if "nvidia" in line or line.startswith(("cuda-drivers", "libcuda1"))]
    return {name: (version.partition("-")[0], status) for name, version, status in found if status != "rc"}


def expect_whole(host, version):
    """All parts are there at one version and held, the module is built, and nothing would move."""
    assert parts(host) == dict.fromkeys({*PARTS, f"nvidia-driver-pinning-{version}"}, (version, "hi"))
    assert host.check_output("sudo dkms status") == f"nvidia/{version}, {KERNEL}, x86_64: installed"
    assert host.check_output("nv-fabricmanager --version").endswith(version)
    assert "nvidia" not in host.check_output("sudo apt-get --simulate dist-upgrade | grep ^Inst || true")
    host.run_expect([0], "sudo apt-get check")
    assert host.check_output("sudo dpkg --audit") == ""


def test_every_part_is_there_at_one_version_and_held_and_nothing_failed_without_gpu(host):
    expect_whole(host, OLD)
    assert "nvidia" not in host.check_output("systemctl list-units --failed --no-legend")
    assert host.service("nvidia-fabricmanager").is_enabled
    assert "blacklist nouveau" in host.file("/etc/modprobe.d/trainyard-nouveau.conf").content_string


@pytest.fixture(scope="module")
def upgrade(run_playbook, fake, tmp_path_factory):
    """Run playbooks/nvidia_upgrade.yml, from one table on; `table` is its text."""
    runs = tmp_path_factory.mktemp("upgrade")

    def run(*arguments, **given):
        given = {**fake, "nvidia_driver_version": NEW, "trainyard_runs": str(runs), **given}
        done = run_playbook("upgrade.yml", *arguments, **given)
        texts = [file.read_text() for file in runs.glob("nvidia-upgrade-*/table.txt")]
        return done, " ".join(" ".join(texts).split())

    return run


def test_bad_input_of_an_upgrade_is_said_before_anything_is_touched(upgrade, node_names):
    done, table = upgrade("--check", nvidia_driver_upgrade_canary=["n9"], nvidia_driver_upgrade_serial=0)
    assert done.rc == 2
    assert "The upgrade of the NVIDIA driver cannot begin: 2 findings. Nothing was changed." in done.text
    assert f"found n9 expected hosts of the groups nvidia and compute within --limit: {node_names[0]}" in done.text
    assert "found 0 expected a number from 1 on" in done.text
    assert table == ""


def test_a_preview_says_what_it_would_do(run, last, last_name):
    run("--check", nvidia_driver_version=NEW).expect(0, f"{last_name}: driver {NEW} instead of {OLD} (network_repo)")
    assert parts(last)["nvidia-smi"] == (OLD, "hi")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (
            {"nvidia_driver_version": "550.90.07"},
            "package cuda-drivers-550 or cuda-drivers on {host} found http://{first}:8099/debian12/x86_64 offers "
            "cuda-drivers-550 550.127.08-1, 550.54.15-1; cuda-drivers 560.35.03-1, 550.127.08-1, 550.54.15-1 expected "
            "550.90.07",
        ),
        (
            {"nvidia_driver_provider": "runfile", "nvidia_driver_version": RUNFILE},
            "driver from elsewhere on {host} found driver 550.54.15 from network_repo expected none, or one from "
            "runfile do set nvidia_driver_provider: network_repo and nvidia_driver_version: 550.54.15 to keep it, or "
            "nvidia_driver_replace",
        ),
    ],
)
def test_what_stands_in_the_way_is_said_before_anything_is_changed(
    run, last, last_name, node_vars, node_names, given, said
):
    run(**given).fails(said.format(host=last_name, first=node_vars[node_names[0]]["ansible_host"]))
    assert parts(last)["nvidia-kernel-dkms"] == (OLD, "hi")


def test_removal_leaves_nothing(run, run_playbook, node, node_names, fake):
    run_playbook("changed.yml", nvidia_driver_state="absent", **fake).expect(0)
    for name in node_names:
        host = node(name)
        assert parts(host) == {}
        assert host.check_output("sudo dkms status") == ""
        assert host.check_output("apt-mark showhold") == ""
        for path in ("/etc/modprobe.d/trainyard-nouveau.conf", "/usr/bin/nvidia-uninstall", "/var/lib/nvidia"):
            assert not host.file(path).exists
        assert "nvidia-driver" not in host.check_output("ls /etc/apt/preferences.d")
        assert "nvidia-persistenced" not in host.check_output("ls /etc/systemd/system")
    run(nvidia_driver_state="absent").changes_nothing()
