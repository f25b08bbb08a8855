"""A cluster is installed, renewed by a delta and put back from bundles, with interruptions: ten minutes, so by name.

pytest tests/renewed_by_name.py in the scenario's folder.
"""

import os
import signal
import subprocess

import pytest
from lab_jobs import wait_until
from offline_by_name import on
from test_site import bare_inventory

# A fixture that the tests have by its name.
__all__ = ["bare_inventory"]
NODES = ("n1", "n2")
PYTHON = "/opt/trainyard/venvs/pytorch/bin/python"
PLACE = "/var/lib/trainyard-root"


def with_tqdm(version):
    return {"trainyard_frameworks": ["pytorch"], "dataset_sets": [], "pytorch_extra_packages": [f"tqdm=={version}"]}


def interrupt(run):
    """Press Ctrl-C."""
    os.killpg(run.process.pid, signal.SIGINT)
    assert run.process.wait(120) != 0


def installed():
    return {on(node, f"{PYTHON} -c 'import tqdm; print(tqdm.__version__)'").strip() for node in NODES}


@pytest.fixture(scope="module")
def disk(tmp_path_factory):
    """A disk of 60 MiB, which can grow."""
    folder = tmp_path_factory.mktemp("disk")
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=60m", "bundles", str(folder)], check=True)
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


@pytest.fixture(scope="module")
def made(run_playbook, bare_inventory, tmp_path_factory, disk):
    """Return a function that locks one version of a package and gives the variables of bundle.yml for that."""
    folder = tmp_path_factory.mktemp("locks")

    def lock(version):
        given = {**with_tqdm(version), "trainyard_lock": str(folder / f"{version}.lock")}
        run_playbook("playbooks/lock.yml", inventory=bare_inventory, **given).expect(0)
        return {**given, "bundle_path": str(disk), "bundle_key": str(folder / "key")}

    return lock


@pytest.fixture(scope="module")
def older(made, run_playbook, play, bare_inventory, disk):
    """The first bundle: no space for it, and then Ctrl-C while it is made."""
    given = made("4.67.0")
    run = run_playbook("playbooks/bundle.yml", inventory=bare_inventory, **given)
    run.expect(2, "No space left on device", "free space, or choose another folder with bundle_path")
    assert [path.suffix for path in disk.iterdir()] == [".part"]
    subprocess.run(["mount", "-o", "remount,size=4g", str(disk)], check=True)
    (part,) = disk.iterdir()
    before = sum(path.stat().st_size for path in part.rglob("*"))
    run = play("playbooks/bundle.yml", inventory=bare_inventory, **given)
    wait_until(lambda: sum(path.stat().st_size for path in part.rglob("*")) > before, "more of the files")
    interrupt(run)
    assert [path.suffix for path in disk.iterdir()] == [".part"]
    run_playbook("playbooks/bundle.yml", inventory=bare_inventory, **given).expect(0)
    (bundle,) = disk.iterdir()
    assert bundle.suffix == ".bundle"
    return bundle


def test_a_node_has_the_bundle_whole_or_not_at_all(older, play, run_playbook, bare_inventory):
    """Ctrl-C while it is unpacked there."""
    given = {**with_tqdm("4.67.0"), "trainyard_bundle": str(older)}
    run = play("site.yml", inventory=bare_inventory, **given)
    wait_until(lambda: "bundle.new" in on("n1", f"ls {PLACE} 2>/dev/null || true").split(), "the files on n1", 300)
    interrupt(run)
    assert "bundle" not in on("n1", f"ls {PLACE}").split()
    run_playbook("site.yml", inventory=bare_inventory, timeout=900, **given).expect(0, "is verified in")
    assert installed() == {"4.67.0"} and "bundle.new" not in on("n1", f"ls {PLACE}").split()


def test_a_delta_renews_the_cluster_and_the_older_bundle_puts_it_back(older, made, run_playbook, bare_inventory, disk):
    given = made("4.67.1")
    run_playbook("playbooks/bundle.yml", inventory=bare_inventory, **given, bundle_since=str(older)).expect(0, "1 file")
    (delta,) = set(disk.iterdir()) - {older}
    assert [path.name.partition("-")[0] for path in (delta / "wheels").glob("*.whl")] == ["tqdm"]
    newer = {**with_tqdm("4.67.1"), "trainyard_bundle": str(delta)}
    alone = run_playbook("site.yml", inventory=bare_inventory, **newer)
    alone.expect(2, "first cp -rn OLDER/. NEWER/", "Nothing was changed")
    alone.changes_nothing()
    subprocess.run(["cp", "-rn", f"{older}/.", f"{delta}/"], check=False)
    run_playbook("site.yml", inventory=bare_inventory, timeout=900, **newer).expect(0, "is verified in")
    assert installed() == {"4.67.1"}
    # The inventory asks for the newer version still, which is not in the older bundle.
    stale = {**newer, "trainyard_bundle": str(older)}
    run_playbook("site.yml", inventory=bare_inventory, **stale).expect(2, "another pytorch for", "Nothing was changed")
    back = {**with_tqdm("4.67.0"), "trainyard_bundle": str(older)}
    run_playbook("site.yml", inventory=bare_inventory, **back).expect(2, "this host has one of", "Nothing was changed")
    back["trainyard_bundle_older"] = True
    run_playbook("site.yml", inventory=bare_inventory, timeout=900, **back).expect(0, "is verified in")
    assert installed() == {"4.67.0"}
    run_playbook("site.yml", inventory=bare_inventory, timeout=900, **back).changes_nothing()
