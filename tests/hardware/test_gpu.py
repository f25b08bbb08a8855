"""Tests on a machine with NVIDIA GPUs, which elsewhere run with fakes: `make test-gpu`, docs/hardware-test.md."""

import json
import os
import re
import shutil
import time
from pathlib import Path

import pytest
from ansible.module_utils.trainyard.hardware.accelerators import pci_address
from ansible.module_utils.trainyard.hardware.gpu_health import parse_query
from ansible.module_utils.trainyard.hardware.nvidia_topology import parse_topology
from ansible.module_utils.trainyard.nvidia import local_collective as rules
from ansible.module_utils.trainyard.nvidia.cuda_verify import check_program
from ansible.module_utils.trainyard.nvidia.library import LIBRARIES
from ansible.module_utils.trainyard.verify.transport import read_nccl_lines
from ansible.module_utils.trainyard_node.hardware.device_discovery import read_accelerators
from ansible.module_utils.trainyard_node.machine.tree import Tree
from ansible.module_utils.trainyard_node.nvidia import collective_run, library_files
from ansible.module_utils.trainyard_node.nvidia.cuda_test_program import verify as run_program
from ansible.module_utils.trainyard_node.nvidia.cuda_toolkits import read_cuda
from ansible.module_utils.trainyard_node.nvidia.host import read_host
from ansible.module_utils.trainyard_node.nvidia.nccl_tests_probe import probe_program
from measured import COLLECTIVES, benchmark, verify
from software import Missing, cuda_home, environment_of, nccl_prefix, ran, source_of, torch_of

PROJECT = Path(__file__).resolve().parents[2]
GIVEN = {name: os.environ.get(f"TRAINYARD_TEST_{name}", "") for name in ("TORCH", "CUDA", "NCCL", "NCCL_TESTS")}
# Captures for the parsers of saved outputs, besides those that the steps read.
SAVED = (
    "nvidia-smi", "nvidia-smi -L", "nvidia-smi -q", "nvidia-smi topo -m", "nvidia-smi nvlink --status",
    "nvidia-smi nvlink --errorcounters", "nvidia-smi topo -p2p r", "nvidia-smi mig -lgi", "lspci -nn -d 10de:", "lscpu",
    "ibstat", "ibstatus", "ibdev2netdev",
)  # fmt: skip


@pytest.fixture(scope="session")
def torch(machine):
    """Return what PyTorch says of itself and of the GPUs."""
    found = torch_of(GIVEN["TORCH"] or "python3", "CUDA device")
    machine.report.machine["torch"] = {name: found[name] for name in ("version", "cuda", "nccl")}
    return found


@pytest.fixture(scope="session")
def venv(machine, torch):
    """Return the environment of the jobs."""
    return environment_of(torch, machine.work)


@pytest.fixture(scope="session")
def cuda(machine):
    """Return the folder of the CUDA toolkit."""
    home = cuda_home(GIVEN["CUDA"])
    machine.report.machine["cuda"] = machine.command(f"{home}/bin/nvcc --version").end(2)
    return home


@pytest.fixture(scope="session")
def nccl(machine, request):
    """Return a folder of NCCL on which programs are built, as the role nccl makes it."""
    try:
        torch = request.getfixturevalue("torch")
    except pytest.skip.Exception:
        # NCCL may be the system's, or given: nccl_prefix says what is missing.
        torch = None
    prefix = nccl_prefix(GIVEN["NCCL"], torch)
    if prefix != "/usr":
        home = machine.root / "nccl"
        library = str(home / "lib/libnccl.so")
        library_files.make_home(
            home, LIBRARIES["nccl"].home_links(library_files.files_of_prefix(prefix)), {"provider": "test"}
        )
        version, _, wrong = library_files.query("nccl", library)
        assert not wrong, wrong
        machine.report.machine["nccl"] = f"{version}, built with CUDA {library_files.nccl_cuda(library)}"
        prefix = str(home)
    return prefix


def test_devices_are_those_that_nvidia_smi_lists(machine, record):
    """The GPUs as the project reads them, compared with nvidia-smi's own list."""
    devices = machine.accelerators["devices"]
    record["devices"], record["problems"] = devices, machine.accelerators["problems"]
    listed = re.findall(r"^GPU (\d+): (.+) \(UUID: (\S+)\)$", machine.command("nvidia-smi -L").output, re.MULTILINE)
    assert [(str(gpu["index"]), gpu["model"], gpu["uuid"]) for gpu in devices] == listed
    assert machine.accelerators["problems"] == []
    assert all(gpu["memory_mib"] and pci_address(gpu["pci"]) == gpu["pci"] for gpu in devices)


def test_devices_are_those_that_cuda_finds(machine, torch, record):
    """The same, compared with what the CUDA runtime tells PyTorch."""
    record["of_cuda"] = torch["devices"]
    if os.environ.get("CUDA_VISIBLE_DEVICES"):
        raise Missing("CUDA_VISIBLE_DEVICES hides devices from CUDA; unset it")
    by_uuid = {gpu["uuid"]: gpu for gpu in machine.accelerators["devices"]}
    if any(gpu["mig"] for gpu in by_uuid.values()):
        raise Missing("MIG is on: CUDA sees parts of GPUs")
    assert sorted(gpu["name"] for gpu in torch["devices"]) == sorted(gpu["model"] for gpu in by_uuid.values())
    for device in torch["devices"]:
        if device["uuid"] in by_uuid:  # PyTorch before 2.5 does not tell it
            # CUDA leaves out what the driver keeps for itself.
            known = by_uuid[device["uuid"]]["memory_mib"]
            assert 0.9 * known < device["memory_mib"] <= known


def test_health_is_what_nvidia_smi_says(machine, record):
    """ECC errors, links, clocks and power state, compared with nvidia-smi's other way of saying them."""
    gpus, wrong = parse_query(machine.tree.command("nvidia-smi.q-x", ["nvidia-smi", "-q", "-x"], 120).output)
    record["health"] = gpus
    assert wrong == ""
    assert [gpu["pci"] for gpu in gpus] == [gpu["pci"] for gpu in machine.accelerators["devices"]]
    fields = {
        "vbios_version": "vbios",
        "ecc.mode.current": "ecc",
        "ecc.errors.corrected.volatile.total": "corrected",
        "ecc.errors.uncorrected.volatile.total": "uncorrected",
        "pcie.link.gen.max": "link_gen_max",
        "pcie.link.width.max": "link_width_max",
    }
    asked = machine.command(f"nvidia-smi --query-gpu={','.join(fields)} --format=csv,noheader,nounits")
    if asked.status != 0:
        raise Missing(f"this nvidia-smi has no such fields: {asked.end(1)}")
    lines = [[value.strip() for value in line.split(",")] for line in asked.output.strip().splitlines()]
    assert len(lines) == len(gpus)
    for gpu, values in zip(gpus, lines):
        for key, value in zip(fields.values(), values):
            shown = None if value.strip("[]") in ("N/A", "Not Supported") else value
            assert str(gpu[key]) == str(shown), f"{gpu['pci']} {key}: read {gpu[key]}, nvidia-smi says {value}"


def test_machine_is_read_for_the_choice_of_a_stack(machine, record):
    """GPUs by PCI, kernel, headers, compilers and packages, as the role nvidia_stack reads them."""
    host = read_host(machine.tree)
    record["host"] = {name: value for name, value in host.items() if name != "apt"}
    on_the_bus = {gpu["pci"]: gpu for gpu in host["gpus"]}
    seen = [gpu for gpu in machine.accelerators["devices"] if gpu["pci"] in on_the_bus]
    if not seen:
        raise Missing("the PCI bus of this machine is hidden from it, as in some containers")
    assert len(seen) == machine.count
    unknown = [gpu["device_id"] for gpu in host["gpus"] if not gpu["generation"]]
    assert unknown == [], f"GPUs that module_utils/trainyard/nvidia/nvidia_hardware.py does not know: {unknown}"


def test_forms_that_people_paste_are_kept(machine, record):
    """What nvidia-smi and other tools print, for the parsers that read it."""
    record["status"] = {line: machine.command(line).status for line in SAVED}
    assert record["status"]["nvidia-smi"] == 0, machine.command("nvidia-smi").end()
    assert record["status"]["nvidia-smi -L"] == 0


def test_topology_has_a_line_for_each_gpu(machine, record):
    """`nvidia-smi topo -m`."""
    shown = machine.command("nvidia-smi topo -m")
    if shown.status != 0:
        raise Missing(f"nvidia-smi topo -m: {shown.end(1)}")
    found = parse_topology(shown.output)
    record["topology"] = found
    assert found["problems"] == []
    assert found["gpus"] == [gpu["index"] for gpu in machine.accelerators["devices"]]
    # Each GPU has a way to each other one.
    assert all(len(found["links"].get(f"GPU{index}", {})) >= machine.count - 1 for index in found["gpus"])


def test_captures_are_read_as_the_machine_was(machine):
    """The captures give the same result as the machine, so they can become a fixture."""
    again = read_accelerators(Tree(str(machine.tree.folder)))
    uuids = [gpu.pop("uuid") for gpu in again["devices"]]
    assert len(set(uuids)) == machine.count
    now = [{name: value for name, value in gpu.items() if name != "uuid"} for gpu in machine.accelerators["devices"]]
    assert again["devices"] == now


def _program(machine, home, with_nccl):
    state = read_cuda(machine.tree, str(machine.root), [home], "")
    # Open MPI does not start processes of root.
    mpi = bool(state["mpi"]) and os.geteuid() != 0
    # Without MPI there is one process, on the first GPU.
    declared = str(machine.count if mpi else 1)
    asked = {
        "user": machine.user, "root": str(machine.root), "home": home, "compiler": "", "mpi": mpi,
        "nccl": bool(with_nccl), "gpus": int(declared), "rpath": True, "build_seconds": 300, "run_seconds": 120,
    }  # fmt: skip
    source = (PROJECT / "roles/cuda_toolkit/files/verify.cu").read_text()
    ran_as = run_program(source, {**state, "nccl": with_nccl}, asked)
    found, findings = check_program("localhost", ran_as, declared, int(declared))
    return {**found, "with": ran_as["with"], "processes": int(declared)}, findings


def test_cuda_program_is_compiled_and_runs(machine, cuda, record):
    """The program by which role cuda_toolkit verifies itself: compiled here, run on the GPUs, its sum compared."""
    found, findings = _program(machine, cuda, "")
    record.update(found)
    assert (found["build"], found["run"]) == ("pass", "pass"), found["detail"]
    assert findings == []


def test_cuda_program_adds_up_with_nccl(machine, cuda, nccl, record):
    """The same with NCCL's all-reduce."""
    found, findings = _program(machine, cuda, nccl)
    record.update(found)
    assert "nccl" in found["with"]
    assert (found["build"], found["run"]) == ("pass", "pass"), found["detail"]
    assert findings == []


@pytest.fixture(scope="session")
def nccl_tests(machine, cuda, nccl):
    """Return the folder of nccl-tests' programs, built here from the source that was given."""
    source = source_of(GIVEN["NCCL_TESTS"], "all_reduce.cu", "nccl-tests", "NCCL_TESTS", machine.work).parent
    if not shutil.which("make"):
        raise Missing("no make in the PATH, which builds nccl-tests; have it installed")
    asked = machine.command("nvidia-smi --query-gpu=compute_cap --format=csv,noheader")
    numbers = sorted({line.strip().replace(".", "") for line in asked.output.splitlines() if line.strip()})
    code = " ".join(f"-gencode=arch=compute_{number},code=sm_{number}" for number in numbers)
    prefix = machine.root / "nccl-tests"
    options = [f"CUDA_HOME={cuda}", f"NCCL_HOME={nccl}", f"NVCC_GENCODE={code}", f"BUILDDIR={prefix}/build", "MPI=0"]
    built = ran(
        ["make", "-j", str(os.cpu_count() or 1), *options], 1800, source, {"LD_RUN_PATH": f"{nccl}/lib:{cuda}/lib64"}
    )
    machine.report.keep_text(built.output, "logs/nccl-tests-make.txt")
    assert built.status == 0, f"nccl-tests could not be built: {built.end()}"
    (prefix / "bin").mkdir()
    for program in (prefix / "build").rglob("*_perf"):
        shutil.move(program, prefix / "bin" / program.name)
    return prefix


def test_nccl_tests_are_built(nccl_tests, record):
    """Programs of nccl-tests that find their libraries and say their flags, as the role nccl_tests asks them."""
    for name in COLLECTIVES:
        said = probe_program(str(nccl_tests / "bin" / f"{name}_perf"), {"env": {"PATH": os.environ["PATH"]}})
        record[name] = said
        assert (said["exists"], said["missing"], said["status"]) == (True, [], 0), said
        assert {"minbytes", "maxbytes", "stepfactor"} <= set(said["flags"])


def test_nccl_tests_measure_inside_the_node(machine, nccl_tests, record):
    """NVIDIA's programs over all GPUs of this machine, run as a job, their output read and judged."""
    for collective in COLLECTIVES:
        benchmark(
            machine, record, collective,
            trainyard_nvidia=["nccl_tests"], nccl_tests_prefix=str(nccl_tests), nccl_tests_suffix="",
        )  # fmt: skip


def test_gpus_add_up_in_the_gate(machine, nccl_tests, record):
    """The small all-reduce that a job has all GPUs of a node do before it starts."""
    asked = rules.command(str(nccl_tests / "bin" / "all_reduce_perf"), range(machine.count), {})
    if not asked:
        raise Missing("one GPU alone, and the gate asks two or more")
    began = time.monotonic()
    ran_so = collective_run.run(asked, {}, None)
    record.update(status=ran_so.status, said=ran_so.said, seconds=round(time.monotonic() - began, 1))
    assert rules.fault(ran_so.status, ran_so.said, machine.count) == ""


def test_collectives_over_nccl(machine, venv, record):
    """Our own collectives over nccl, every element of every rank compared."""
    for collective in COLLECTIVES:
        benchmark(machine, record, collective, benchmark_program="own", benchmark_backend="nccl", benchmark_venv=venv)


def test_training_over_nccl(machine, torch, venv, record):
    """A training by launch.yml on all GPUs, with torchrun and nccl."""
    before = machine.known_runs()
    done = machine.play(
        "launch.yml",
        job_name="resnet18-random",
        job_launcher="torchrun",
        job_ranks_per_node="auto",
        job_devices="auto",
        job_source=str(PROJECT / "training/pytorch"),
        job_command=["python", "train.py", "--dataset=random", "--random-size=4096", "--model=resnet18", "--epochs=3",
                     "--batch-size=64", "--log-every=4"],
        job_venv=venv,
        job_packages=["torch"],
        job_env={"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT,NET,GRAPH"},
        job_timeout=600,
    )  # fmt: skip
    folder = machine.run_folder(before)
    assert done.status == 0, done.end(30)
    summary = json.loads((folder / "summary.json").read_text())
    logs = [path.read_text(errors="replace") for path in sorted(folder.glob("logs/rank_*.log"))]
    text = "\n".join(logs)
    record["metrics"] = summary["metrics"]
    record["nccl"] = sorted(set(re.findall(r"NCCL version \S+", text)))
    said = read_nccl_lines(text.splitlines())
    record["networks"] = sorted(said.networks)
    losses = [float(loss) for loss in re.findall(r"^step \d+/\d+ .*loss (\S+)", text, re.MULTILINE)]
    record["losses"] = losses
    assert len(logs) == machine.count
    assert losses[-1] < losses[0], "the loss did not fall"
    assert record["nccl"], "no line of NCCL in the logs"
    assert text.count("Init COMPLETE") >= machine.count
    sums = set(re.findall(r"parameters sha256 (\w+)", text))
    assert len(sums) == 1, f"the ranks ended with different parameters: {sums}"
    assert (folder / "report.html").stat().st_size > 10_000


def test_verification_of_this_machine(machine, request, record):
    """verify.yml: devices judged, collectives, bandwidth inside the node, counters before and after, the pages."""
    phases, more = ["devices", "counters"], {}
    try:
        more = {"job_venv": request.getfixturevalue("venv"), "benchmark_venv": request.getfixturevalue("venv")}
        phases = ["devices", "collectives", "bandwidth", "counters"]
    except pytest.skip.Exception as why:
        record["left_out"] = f"collectives, bandwidth: {why}"
    verify(machine, record, phases, **more)
