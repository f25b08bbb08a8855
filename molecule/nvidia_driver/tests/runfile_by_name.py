"""An upgrade that fails goes back to the vendor's driver: minutes, for rules that have unit tests, so it runs by name.

pytest tests/runfile_by_name.py in the scenario's folder, after `make molecule SCENARIO=nvidia_driver`.
"""

import base64
import hashlib
import os
from pathlib import Path

import pytest
from lab_jobs import PROJECT
from test_nvidia_driver import INSTALLER, KERNEL, NEW, RUNFILE, VENDORS, fake, parts, run, upgrade

# Fixtures that the test gets by their names.
__all__ = ["fake", "run", "upgrade"]
# A fake for CUDA, whose programs do not run with the newer driver.
NVCC = PROJECT / "tests/fixtures/nvidia_driver/nvcc"
TOOLKIT = "/opt/trainyard/cuda-12.4"


@pytest.fixture(scope="module", autouse=True)
def converged(run_playbook):
    """Put up again what the scenario has taken away."""
    run_playbook("converge.yml").expect(0)


def test_an_upgrade_that_fails_goes_back_to_the_runfile_that_was_there(upgrade, run, node_names, last, last_name):
    run(**VENDORS, nvidia_driver_replace=True).expect(0)
    folder = os.environ.get("MOLECULE_EPHEMERAL_DIRECTORY") or PROJECT / ".cache"
    file = Path(folder).resolve() / f"NVIDIA-Linux-x86_64-{RUNFILE}.run"
    sha256 = hashlib.sha256(file.read_bytes()).hexdigest()
    # From a bundle: nothing answers at its own address.
    way_back = {"version": RUNFILE, "url": f"http://127.0.0.1:9/{file.name}", "sha256": sha256}
    program = base64.b64encode(NVCC.read_bytes()).decode()
    last.check_output(
        f"sudo sh -ec 'mkdir -p {TOOLKIT}/bin; ln -s {TOOLKIT} {TOOLKIT.partition('-')[0]}; "
        f"echo {program} | base64 -d >{TOOLKIT}/bin/nvcc; chmod 0755 {TOOLKIT}/bin/nvcc; "
        "rm /var/log/replay-installer.arguments'"
    )
    try:
        done, table = upgrade(
            nvidia_driver_replace=True,
            nvidia_driver_upgrade_canary=[last_name],
            nvidia_driver_upgrade_runfiles=[way_back],
            bundled={sha256: str(file)},
        )
    finally:
        last.check_output(f"sudo rm -r {TOOLKIT} {TOOLKIT.partition('-')[0]}")
    done.expect(2, f"rolled back on {last_name}")
    assert f"{last_name} 1 rolled back {NEW} (network_repo) CUDA program of {TOOLKIT}: cudaSetDevice(local): " in table
    assert f"{node_names[0]} 2 waiting" in table
    assert parts(last) == {}
    assert last.check_output("sudo dkms status") == f"nvidia/{RUNFILE}, {KERNEL}, x86_64: installed"
    assert f"--kernel-name={KERNEL}" in last.file("/var/log/replay-installer.arguments").content_string
    assert not last.file(INSTALLER).exists
