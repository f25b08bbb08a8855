"""site.yml and jobs from one bundle, on bare hosts of two releases without a way out: minutes, so it runs by name.

pytest tests/offline_by_name.py in the scenario's folder. Debian 11 has no Python for PyTorch's latest release, so of
FRAMEWORKS=pytorch,mindspore,openmpi (a quarter of an hour), RELEASE=bookworm alone can have all.
"""

import os
import re
import shutil
import subprocess

import pytest
from lab_jobs import LAB
from test_site import bare_lab

NODES = ("n1", "n2")
SYSTEMS = {"bookworm": "debian-12-x86_64", "bullseye": "debian-11-x86_64"}
RELEASES = [os.environ["RELEASE"]] if "RELEASE" in os.environ else list(SYSTEMS)
FRAMEWORKS = os.environ.get("FRAMEWORKS", "openmpi").split(",")
# One for each of them, and options beside those of the file.
JOBS = {
    "openmpi": {
        "job_name": "names",
        "job_launcher": "mpirun",
        "job_venv": "",
        "job_packages": [],
        "job_command": ["hostname"],
    },
    "pytorch": "jobs/digits.yml",
    "mindspore": "jobs/mindspore-digits.yml",
}


def on(node, command):
    done = subprocess.run(
        ["podman", "exec", f"{LAB}-bare-{node}", "sh", "-c", command], capture_output=True, text=True, check=True
    )
    return done.stdout


def without_a_route(node):
    """Return how many packets of a node had no way to where they should go."""
    names, values = re.findall(r"^Ip: (.+)$", on(node, "cat /proc/net/snmp"), re.MULTILINE)
    return int(dict(zip(names.split(), values.split()))["OutNoRoutes"])


@pytest.fixture(scope="module")
def asked(run_playbook, tmp_path_factory):
    """Options of site.yml with a bundle for all releases, which no host helps to make."""
    folder = tmp_path_factory.mktemp("bundle")
    hosts = "".join(f"    {system}: {{trainyard_system: {system}}}\n" for system in map(SYSTEMS.get, RELEASES))
    (folder / "hosts.yml").write_text(f"compute:\n  hosts:\n{hosts}")
    lab = {"inventory": folder / "hosts.yml", "trainyard_lock": str(folder / "trainyard.lock")}
    # As the lab's inventory has it, where PyTorch is a build without GPUs.
    given = {"trainyard_frameworks": FRAMEWORKS, "pytorch_require_hashes": False}
    given |= {"dataset_sets": []} if FRAMEWORKS == ["openmpi"] else {}
    run_playbook("playbooks/lock.yml", **lab, **given).expect(0)
    where = {"bundle_path": str(folder), "bundle_key": str(folder / "key")}
    run_playbook("playbooks/bundle.yml", **lab, **given, **where).expect(0)
    (bundle,) = folder.glob("*.bundle")
    return {**given, "trainyard_bundle": str(bundle)}


@pytest.fixture(scope="module", params=RELEASES)
def bare_inventory(request):
    """Two bare hosts, which reach only each other and the controller."""
    with bare_lab(request.param) as inventory:
        for node in NODES:
            on(node, "ip route del default")
        yield inventory


def test_a_changed_bundle_is_refused_before_anything_is_touched(run_playbook, bare_inventory, asked, tmp_path):
    broken = tmp_path / "broken.bundle"
    shutil.copytree(asked["trainyard_bundle"], broken)
    next(broken.glob("debs/*/rsync_*.deb")).write_bytes(b"other")
    next(broken.glob("debs/*/openmpi-bin_*.deb")).unlink()
    more = {**asked, "trainyard_bundle": str(broken), "trainyard_frameworks": [*FRAMEWORKS, "oneflow"]}
    run = run_playbook("site.yml", inventory=bare_inventory, **more)
    run.expect(2, "this copy is damaged or changed", "has no debs/", "another oneflow for", "Nothing was changed")
    run.changes_nothing()


def test_everything_comes_from_the_bundle_and_a_second_run_changes_nothing(run_playbook, bare_inventory, asked):
    before = {node: without_a_route(node) for node in NODES}
    sources = {
        node: on(node, "cat /etc/apt/sources.list /etc/apt/sources.list.d/*; ls /var/lib/apt/lists") for node in NODES
    }
    run_playbook("site.yml", inventory=bare_inventory, timeout=900, **asked).expect(0, "is verified in")
    run_playbook("site.yml", inventory=bare_inventory, timeout=900, **asked).changes_nothing()
    for framework in FRAMEWORKS:
        job = JOBS[framework]
        arguments, more = (["-e", f"@{job}"], {}) if isinstance(job, str) else ([], job)
        run_playbook("launch.yml", *arguments, inventory=bare_inventory, job_nodes=2, **more).expect(0, "succeeded")
    assert {node: without_a_route(node) for node in NODES} == before
    # Afterwards apt has its own sources and lists again.
    for node in NODES:
        assert on(node, "cat /etc/apt/sources.list /etc/apt/sources.list.d/*; ls /var/lib/apt/lists") == sources[node]
        assert "trainyard" not in on(node, "apt-config dump | grep -i dir::")
    run_playbook("playbooks/bundle_leave.yml", inventory=bare_inventory, bundle_remove=True).expect(0)
    assert "bundle" not in on("n1", "ls /var/lib/trainyard-root").split()
