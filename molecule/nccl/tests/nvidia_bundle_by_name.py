"""NVIDIA's driver and NCCL from a bundle, on nodes that have no repository of NVIDIA: minutes, so it runs by name.

pytest tests/nvidia_bundle_by_name.py in the scenario's folder, after `make molecule SCENARIO=nccl`.
"""

import json
from pathlib import Path

import pytest
from lab_jobs import PROJECT, ansible_playbook

DRIVER, NCCL = "550.54.15", "2.21.5"
TAGS = ("--tags", "nvidia_driver,nccl")


@pytest.fixture(scope="module")
def asked(run_playbook, request, tmp_path_factory, inventory_path, node_names):
    """Options of all playbooks, and a bundle of the fake repository, which is gone then, as is all that it brought."""
    folder = tmp_path_factory.mktemp("bundle")
    group = folder / "group.yml"
    group.write_text(f"nvidia: {{hosts: {{{', '.join(f'{name}: ' for name in node_names)}}}}}\n")
    run_playbook("repository.yml", steps=[]).expect(0)
    address = request.getfixturevalue("uri").rpartition("/debian")[0]
    given = {
        "trainyard_frameworks": [],
        "trainyard_nvidia": ["nvidia_driver", "nccl"],
        "trainyard_lock": str(folder / "trainyard.lock"),
        "dataset_sets": [],
        "nvidia_repository_url": address,
        "nvidia_repository_key_fingerprint": request.getfixturevalue("fingerprints")["nvidia"],
        # Lab nodes have no GPU, and no module is built for the machine's kernel.
        "nvidia_gpus": 0,
        "nvidia_driver_without_gpu": True,
        "nvidia_driver_kernels": [],
        "nvidia_stack_overrides": {
            "driver": {"provider": "network_repo", "version": DRIVER, "flavour": "proprietary"},
            "nccl": {"provider": "network_repo", "version": NCCL, "cuda": "12.4"},
        },
    }
    options = ("-i", str(group))
    run_playbook("playbooks/lock.yml", *options, **given).expect(0, "packages of the system")
    where = {"bundle_path": str(folder), "bundle_key": str(folder / "key")}
    run_playbook("playbooks/bundle.yml", *options, **given, **where).expect(0)
    run_playbook("clean.yml").expect(0)
    (bundle,) = folder.glob("*.bundle")
    yield options, {**given, "trainyard_bundle": str(bundle)}
    run_playbook("playbooks/bundle_leave.yml", bundle_remove=True).expect(0)
    ansible_playbook(PROJECT / "molecule/nvidia_driver/replay.yml", inventory_path, replay_state="absent").expect(0)


def test_a_lock_has_one_version_of_all_that_belongs_to_the_driver_and_stays(asked, run_playbook):
    options, given = asked
    path = Path(given["trainyard_lock"])
    written = path.read_text()
    ((_, parts),) = json.loads(written)["systems"].items()
    locked = {each["name"]: each["version"] for each in parts["packages"]["files"]}
    # The newest is 560.35.03, and all dependencies say >=.
    names = ("cuda-drivers-550", "nvidia-driver", "libcuda1", "nvidia-smi", "nvidia-kernel-dkms")
    assert {locked[name] for name in names} == {f"{DRIVER}-1"}
    # The system's own packages are resolved along.
    assert {"libc6", "rsync"} <= set(locked)
    # The repository is gone, and the lock needs it no more.
    run_playbook("playbooks/lock.yml", *options, **given).changes_nothing()
    assert path.read_text() == written


def test_a_bundle_without_the_requested_version_is_refused(asked, run_playbook):
    options, given = asked
    nccl = {**given["nvidia_stack_overrides"]["nccl"], "version": "2.20.5"}
    other = {**given, "nvidia_stack_overrides": {**given["nvidia_stack_overrides"], "nccl": nccl}}
    run = run_playbook("site.yml", *options, *TAGS, **other)
    run.expect(2, "no libnccl-dev=2.20.5-1+cuda12.4 (network_repo), libnccl2=2.20.5-1+cuda12.4", "Nothing was changed")
    run.changes_nothing()


def test_nodes_install_from_the_bundle_and_a_second_run_changes_nothing(asked, run_playbook, have, last):
    options, given = asked
    run_playbook("site.yml", *options, *TAGS, timeout=900, **given).expect(0)
    assert have() == dict.fromkeys(("libnccl2", "libnccl-dev"), (f"{NCCL}-1+cuda12.4", "hold"))
    assert last.check_output("dpkg-query -W -f '${Version}' libcuda1") == f"{DRIVER}-1"
    assert last.run("ls /etc/apt/sources.list.d /etc/apt/keyrings /etc/apt/preferences.d | grep trainyard-nvidia$").rc
    assert "trainyard" not in last.check_output("cat /etc/apt/apt.conf.d/*")
    run_playbook("site.yml", *options, *TAGS, timeout=900, **given).changes_nothing()
