"""Tests on a machine with Ascend NPUs, which elsewhere run with fakes: `make test-npu`, docs/hardware-test.md."""

import os
import re
import shutil
from pathlib import Path

import pytest
from ansible.module_utils.trainyard.ascend.rank_table import Device, Server, build, validate
from ansible.module_utils.trainyard.hardware.npu import chip_of
from ansible.module_utils.trainyard_node.ascend.ascend_state import read_ascend
from ansible.module_utils.trainyard_node.hardware.device_discovery import read_accelerators
from ansible.module_utils.trainyard_node.machine.tree import Tree
from measured import COLLECTIVES, benchmark, hccl_rows, verify
from software import Missing, environment_of, ran, source_of, torch_of

PROJECT = Path(__file__).resolve().parents[2]
GIVEN = {name: os.environ.get(f"TRAINYARD_TEST_{name}", "") for name in ("TORCH", "CANN", "HCCL_TEST")}
CANN = GIVEN["CANN"] or "/usr/local/Ascend"
_NAME_CANN = "name the folder of the vendor's software: CANN=/path"
# Captures for the parsers of saved outputs, besides those that the steps read.
SAVED = (
    "npu-smi info", "npu-smi info -l", "npu-smi info -m", "npu-smi info -t topo", "npu-smi info -t health -i 0",
    "npu-smi info -t memory -i 0", "npu-smi info -t ecc -i 0", "hccn_tool -i 0 -ip -g", "hccn_tool -i 0 -link -g",
    "hccn_tool -i 0 -net_health -g", "hccn_tool -i 0 -lldp -g", "hccn_tool -i 0 -optical -g", "hccn_tool -i 0 -stat -g",
    "hccn_tool -i 0 -gateway -g", "hccn_tool -i 0 -tls -g", "hccn_tool -i 0 -netdetect -g", "lscpu",
)  # fmt: skip


@pytest.fixture(scope="session")
def ascend(machine):
    """Return devices, addresses and the vendor's software, as role ascend reads them."""
    found = {"host": "localhost", **read_ascend(machine.tree, CANN)}
    machine.report.machine["ascend"] = {name: found[name] for name in ("driver", "running_driver", "firmware", "cann")}
    return found


@pytest.fixture(scope="session")
def venv(machine):
    """Return the environment of jobs that need no device: any PyTorch."""
    return environment_of(torch_of(GIVEN["TORCH"] or "python3", ""), machine.work)


@pytest.fixture(scope="session")
def device_venv(machine):
    """Return that of jobs on the devices: PyTorch with torch_npu."""
    return environment_of(torch_of(GIVEN["TORCH"] or "python3", "NPU, by torch_npu"), machine.work)


def test_devices_are_those_that_npu_smi_lists(machine, record):
    """The NPUs as the project reads them, compared with npu-smi's own list of cards and chips."""
    devices = machine.accelerators["devices"]
    record["devices"], record["problems"] = devices, machine.accelerators["problems"]
    shown = machine.command("npu-smi info -l").output
    cards = dict(re.findall(r"NPU ID\s*:\s*(\d+)\s*\n\s*Chip Count\s*:\s*(\d+)", shown))
    assert {int(card): int(chips) for card, chips in cards.items()} == {
        card: sum(device["card"] == card for device in devices) for card in {device["card"] for device in devices}
    }
    assert machine.accelerators["problems"] == []
    assert chip_of(devices), f"unknown models: {sorted({device['model'] for device in devices})}"


def test_software_of_the_vendor_is_read(ascend, record):
    """Versions of driver, firmware and CANN, as installed and as they run."""
    record["ascend"] = ascend
    assert ascend["npu"]["problems"] == []
    if not ascend["driver"]:
        raise Missing(f"no driver/version.info in {CANN}; {_NAME_CANN}")
    assert ascend["running_driver"]


def test_forms_that_people_paste_are_kept(machine, record):
    """What npu-smi, hccn_tool and other tools print, for the parsers that read it."""
    record["status"] = {line: machine.command(line).status for line in SAVED}
    assert record["status"]["npu-smi info"] == 0, machine.command("npu-smi info").end()


def test_captures_are_read_as_the_machine_was(machine):
    """The captures give the same result as the machine, so they can become a fixture."""
    assert read_accelerators(Tree(str(machine.tree.folder)))["devices"] == machine.accelerators["devices"]


def test_rank_table_of_this_machine_fits_all_rules(machine, ascend, record):
    """A rank table built from what was read, held against the rules of HCCL."""
    npu = ascend["npu"]
    devices = tuple(
        Device(device["physical_id"], device["device_ip"], device["super_device_id"]) for device in npu["devices"]
    )
    if machine.count > 1 and not all(device.device_ip for device in devices):
        raise Missing("devices without addresses: hccn_tool -i N -ip -g says none for them")
    server = Server("127.0.0.1", devices, super_pod_id=npu["super_pod_id"] or "0")
    table = build([server], npu["chip"])
    record["table"] = table
    assert [f"{finding.check}: {finding.found}" for finding in validate(table, npu["chip"])] == []


def test_ranks_of_a_launch_compare_their_places(machine, venv, record):
    """jobs/ascend-check.yml: a process for each device compares its place with the rank table."""
    before = machine.known_runs()
    done = machine.play("launch.yml", "-e", "@jobs/ascend-check.yml", job_venv=venv, job_packages=["torch"])
    folder = machine.run_folder(before)
    assert done.status == 0, done.end(30)
    logs = [path.read_text(errors="replace") for path in sorted(folder.glob("logs/rank_*.log"))]
    record["right"] = sum(" right" in text for text in logs)
    assert record["right"] == machine.count


@pytest.fixture(scope="session")
def hccl_test(machine):
    """Return the folder of CANN's HCCL test, built here from the source that was given."""
    mpirun = shutil.which("mpirun")
    source = source_of(GIVEN["HCCL_TEST"], "Makefile", "HCCL test", "HCCL_TEST", machine.work)
    if not mpirun:
        raise Missing("no mpirun in the PATH, which starts HCCL test; put Open MPI or MPICH there")
    home = next((path for path in (Path(CANN, "cann"), Path(CANN, "ascend-toolkit/latest")) if path.exists()), None)
    if home is None:
        raise Missing(
            f"no cann or ascend-toolkit/latest in {CANN}; name the folder of the vendor's software: CANN=/path"
        )
    mpi = str(Path(mpirun).resolve().parents[1])
    built = ran(["make", f"MPI_HOME={mpi}", f"ASCEND_DIR={home}"], 580, source)
    machine.report.keep_text(built.output, "logs/hccl-test-make.txt")
    assert built.status == 0, f"HCCL test could not be built: {built.end()}"
    return source / "bin"


def test_hccl_test_is_right_on_all_devices(machine, hccl_test, record):
    """The vendor's own collectives over all NPUs, with their results checked."""
    root = ["--allow-run-as-root"] if os.geteuid() == 0 else []
    for name in COLLECTIVES:
        program = [f"./{name}_test", "-b", "8K", "-e", "64M", "-f", "2", "-d", "fp32", "-p", str(machine.count)]
        done = ran(["mpirun", *root, "-n", str(machine.count), *program], 300, hccl_test)
        machine.report.keep_text(done.output, f"captures/outputs/hccl_{name}_test.txt")
        rows = record[name] = hccl_rows(done.output)
        assert done.status == 0, done.end()
        # NULL: the tool could not check the sum of so many.
        assert rows and {row[3] for row in rows} <= {"success", "NULL"}, done.end()


def test_collectives_over_hccl(machine, device_venv, record):
    """Our own collectives over hccl, every element of every rank compared."""
    for collective in COLLECTIVES:
        own = {"benchmark_program": "own", "benchmark_backend": "hccl", "benchmark_venv": device_venv}
        benchmark(machine, record, collective, **own)


def test_verification_of_this_machine(machine, record):
    """verify.yml: devices judged, counters before and after, the pages."""
    verify(machine, record, ["devices", "counters"], verify_ascend_root=CANN)
