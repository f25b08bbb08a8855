"""`make test-gpu` and `make test-npu` on fakes: steps, report, exit status, and files that remain."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import tarfile
import tempfile
from functools import partial
from pathlib import Path

import pytest
from ansible.module_utils.trainyard.base.redaction import HIDDEN
from ansible.module_utils.trainyard.hardware.gpu_health import parse_query
from ansible.module_utils.trainyard_node.hardware.device_discovery import read_accelerators
from ansible.module_utils.trainyard_node.machine.tree import Tree
from captured_tree import fold, unfold

PROJECT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(PROJECT / "tests/hardware"))

from anonymous import Anonymous  # noqa: E402
from recording import Recording  # noqa: E402

STAND_INS = {"gpu": "nvidia_smi", "npu": "ascend"}
MACHINES = PROJECT / "tests/fixtures/verify"
VERIFICATION, RANK_TABLE = "verification_of_this_machine", "rank_table_of_this_machine_fits_all_rules"


class Done:
    """The result of such a test, and its report."""

    def __init__(self, done, reports):
        self.rc, self.output, self.reports = done.returncode, done.stdout + done.stderr, reports

    @property
    def folder(self):
        [found] = [path for path in self.reports.iterdir() if path.is_dir()]
        return found

    @property
    def report(self):
        return json.loads((self.folder / "report.json").read_text())

    @property
    def steps(self):
        return {step["name"]: step for step in self.report["steps"]}


@pytest.fixture
def scratch():
    """Return a folder with a short path, as Ansible has sockets below TMPDIR, whose paths end at 107 bytes."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        yield Path(folder)


def run_it(folder, scratch, *options, kind="gpu", **environment):
    """Run tests/hardware with the fake of the vendor's tool."""
    env = {
        **{name: value for name, value in os.environ.items() if not name.startswith(("TRAINYARD_TEST", "PYTEST"))},
        "PATH": f"{PROJECT / 'tests/fixtures' / STAND_INS[kind]}:{os.environ['PATH']}",
        **{"TMPDIR": str(scratch), "TRAINYARD_TEST_REPORTS": str(folder / "reports")},
        **{"TRAINYARD_TEST_TORCH": "/proc/nowhere/python3", "TRAINYARD_TEST_CUDA": "/proc/nowhere/cuda", **environment},
    }
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", f"tests/hardware/test_{kind}.py", *options]
    done = subprocess.run(command, cwd=PROJECT, env=env, capture_output=True, text=True, check=False)
    assert list(scratch.iterdir()) == [], "something was left behind"
    return Done(done, folder / "reports")


@pytest.fixture
def run(tmp_path, scratch):
    """Return a function that runs tests/hardware with these options and variables."""
    return partial(run_it, tmp_path, scratch)


@pytest.fixture(scope="module")
def with_gpus(tmp_path_factory):
    """Return the result of all steps with fake GPUs."""
    with tempfile.TemporaryDirectory(dir="/tmp") as scratch:
        return run_it(tmp_path_factory.mktemp("gpus"), Path(scratch))


def test_a_run_with_a_fake_gpu_is_complete_and_names_the_fake(with_gpus):
    done = with_gpus
    assert done.rc == 0, done.output
    assert done.report["result"] == "passed"
    assert done.report["fakes"] == ["fake for nvidia-smi of trainyard's tests, NVIDIA-SMI version : 570.86.15"]
    assert "With a fake, which says nothing of any device" in done.output
    states = {name: step["state"] for name, step in done.steps.items()}
    for name in ("devices_are_those_that_nvidia_smi_lists", "health_is_what_nvidia_smi_says", VERIFICATION):
        assert states[name] == "passed", done.steps[name]
    # A missing tool is reported with what it needs, and is no success.
    not_run = {
        "training_over_nccl": "no /proc/nowhere/python3",
        "cuda_program_is_compiled_and_runs": "no nvcc with its headers in /proc/nowhere/cuda",
        "nccl_tests_measure_inside_the_node": "no nvcc with its headers",
    }
    for name, why in not_run.items():
        assert states[name] == "not run" and done.steps[name]["reason"].startswith(why), done.steps[name]
    assert re.search(r"passed, 0 failed, \d+ not run on 2 x NVIDIA H100 80GB HBM3", done.output)
    verified = done.steps[VERIFICATION]["data"]
    assert verified["left_out"].startswith("collectives, bandwidth: no /proc/nowhere/python3")
    assert set(verified["phases"]) == {"devices", "counters"} and "fail" not in verified["phases"].values()


@pytest.mark.long
def test_a_run_with_fake_npus_is_complete(run, tmp_path):
    (tmp_path / "replay.conf").write_text("NODE=1\nMODEL=910B3\nDEVICES=8\nCARD_CHIPS=1\n")
    (tmp_path / "replay.running").write_text("DRIVER=24.1.0\nFIRMWARE=7.5.0.3.220\n")
    (tmp_path / "hccn.conf").write_text("".join(f"address_{number}=192.168.{number}.1\n" for number in range(8)))
    done = run(kind="npu", REPLAY=str(tmp_path), TRAINYARD_TEST_CANN="/proc/nowhere")
    assert done.rc == 0, done.output
    assert (done.report["test"], done.report["fakes"]) == ("npu", ["npu-smi replay, version: 24.1.0"])
    states = {name: step["state"] for name, step in done.steps.items()}
    for name in ("devices_are_those_that_npu_smi_lists", RANK_TABLE, VERIFICATION):
        assert states[name] == "passed", done.steps[name]
    assert done.steps["hccl_test_is_right_on_all_devices"]["reason"].startswith("no source of HCCL test; give one")
    assert [states[name] for name in ("software_of_the_vendor_is_read", "collectives_over_hccl")] == ["not run"] * 2
    assert len(done.steps[RANK_TABLE]["data"]["table"]["server_list"][0]["device"]) == 8


def test_the_archive_has_report_captures_and_pages_without_names_of_the_machine(with_gpus):
    done = with_gpus
    packed = done.folder.with_name(f"{done.folder.name}.tar.gz")
    with tarfile.open(packed) as tar:
        names = [member.name.partition("/")[2] for member in tar.getmembers()]
        assert {(member.uid, member.uname) for member in tar.getmembers()} == {(0, "")}
    assert {"report.json", "captures/commands/nvidia-smi.query-gpu.out"} <= set(names)
    assert [name for name in names if re.fullmatch(r"runs/verify-[\d-]+/report\.(json|html|xml)", name)]
    texts = [path.read_text() for path in done.folder.rglob("*") if path.is_file() and path.suffix != ".html"]
    assert not [text for text in texts if "GPU-5a1c7b0e-4c1f-4d7e-9a55-0b1c52f0a001" in text]
    assert not [text for text in texts if re.search(rf"(?<![\w-]){re.escape(socket.gethostname())}(?![\w-])", text)]
    assert "GPU-00000000-0000-0000-0000-000000000001" in (done.folder / "report.json").read_text()


@pytest.mark.long
def test_a_device_that_nvidia_smi_does_not_list_fails_the_run(run):
    done = run("-k", "devices_are_those_that_nvidia_smi_lists", STAND_IN_NVIDIA_SMI="fewer")
    assert done.rc == 1
    assert (done.report["result"], done.report["numbers"]["failed"]) == ("failed", 1)


def test_a_run_without_devices_ends_with_one_message(run):
    done = run(STAND_IN_NVIDIA_SMI="broken")
    assert done.rc == pytest.ExitCode.USAGE_ERROR
    output = " ".join(done.output.split())
    assert "make test-gpu: this machine has no NVIDIA GPU" in output
    assert "couldn't communicate with the NVIDIA driver" in output and "Nothing was tested" in output
    assert not done.reports.exists()


LEFT_RUNNING = """
import os, sys
from pathlib import Path
sys.path.insert(0, "tests/hardware")
from conftest import Session
session = Session("gpu", "nvidia", "nvidia-smi", Path(sys.argv[1]) / "report")
job = dict(job_name="left", job_launcher="direct", job_devices="none", job_venv="", job_packages=[], job_wait=False)
done = session.play("launch.yml", job_ranks_per_node=1, job_source=sys.argv[2], job_command=["sleep", "600"], **job)
assert done.status == 0, done.output
session.close()
assert not session.work.exists()
print(*(path.read_text() for path in session.report.folder.glob("logs/*-stop.txt")))
"""


@pytest.mark.long
def test_an_interrupted_run_ends_its_job_before_it_deletes_the_folder(tmp_path, scratch):
    (tmp_path / "source").mkdir()
    path = f"{PROJECT / 'tests/fixtures/nvidia_smi'}:{os.environ['PATH']}"
    env = {**os.environ, "PATH": path, "TMPDIR": str(scratch)}
    command = [sys.executable, "-c", LEFT_RUNNING, str(tmp_path), str(tmp_path / "source")]
    done = subprocess.run(command, cwd=PROJECT, env=env, capture_output=True, text=True, check=False)
    assert "no process of the job is left on localhost" in done.stdout, done.stdout + done.stderr


def test_captures_hold_files_and_links_of_sysfs(tmp_path, monkeypatch):
    machine = tmp_path / "machine"
    device = machine / "sys/devices/pci0000:16/0000:16:01.0/0000:17:00.0"
    device.mkdir(parents=True)
    (device / "max_link_speed").write_text("32.0 GT/s PCIe\n")
    (device.parent / "max_link_speed").write_text("16.0 GT/s PCIe\n")
    bus = machine / "sys/bus/pci/devices"
    bus.mkdir(parents=True)
    (bus / "0000:17:00.0").symlink_to("../../../devices/pci0000:16/0000:16:01.0/0000:17:00.0")
    tree = Recording(tmp_path / "captures", str.upper)
    paths = [f"{bus}/0000:17:00.0/max_link_speed", f"{bus}/0000:17:00.0/../max_link_speed"]
    assert tree.names(str(bus)) == ["0000:17:00.0"]
    assert [tree.text(path) for path in paths] == ["32.0 GT/s PCIe", "16.0 GT/s PCIe"]
    assert tree.text("/proc/nowhere") is None and tree.exists(str(bus))
    outcome = tree.command("false", ["sh", "-c", "echo no; exit 3"], 10)
    assert (outcome.status, outcome.output) == (3, "no\n")
    who = tree.command("user", ["id", "-u"], 10, as_nobody=True)
    assert (who.output == "0\n", who.status) == (False, 0)
    again = Tree(str(tmp_path / "captures"))
    assert [again.text(path) for path in paths] == ["32.0 GT/S PCIE", "16.0 GT/S PCIE"]
    assert again.names(str(bus)) == ["0000:17:00.0"]
    assert again.command("false", [], 10) == (3, "NO")


def test_a_folder_of_captures_becomes_a_tree(tmp_path):
    machine = unfold("gpu2", tmp_path / "a", MACHINES)
    (machine / "empty").mkdir()
    (machine / "link").symlink_to("empty")
    (machine / "commands/odd.out").write_text("one\nEOF\ntwo")
    (tmp_path / "again.tree").write_text(fold(machine))
    again = unfold("again", tmp_path / "b", tmp_path)
    first, second = (read_accelerators(Tree(str(folder))) for folder in (machine, again))
    assert first == second and first["devices"]
    assert (again / "link").readlink() == Path("empty") and (again / "empty").is_dir()
    assert (again / "commands/odd.out").read_text() == "one\nEOF\ntwo\n"


@pytest.fixture
def anonymous():
    return Anonymous({"gpu-7", "gpu-7.example.org"}, ["10.1.2.3", "2a01:db8::7"], {"/home/ann", "/root"})


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("GPU-5a1c7b0e-4c1f-4d7e-9a55-0b1c52f0a001", "GPU-00000000-0000-0000-0000-000000000001"),
        ("<serial>1650922003456</serial>", f"<serial>{HIDDEN}</serial>"),
        ("<serial>N/A</serial>", "<serial>N/A</serial>"),
        ("    Serial Number           : 1650922003456", f"    Serial Number           : {HIDDEN}"),
        ("rank 0 on gpu-7 and gpu-7.example.org", "rank 0 on this-machine and this-machine"),
        ("at 10.1.2.3:5000, not 10.1.2.34 or 110.1.2.3", "at 192.0.2.1:5000, not 10.1.2.34 or 110.1.2.3"),
        ("inet6 2a01:db8::7/64", "inet6 2001:db8::2/64"),
        ("link/ether 3c:ec:ef:12:34:56 brd ff:ff:ff:ff:ff:ff", "link/ether 02:00:00:00:00:01 brd ff:ff:ff:ff:ff:ff"),
        ("node_guid 946d:ae03:0012:3456", "node_guid 0200:0000:0000:0001"),
        ("/home/ann/train.py /home/anna", "/home/user/train.py /home/anna"),
        *((same, same) for same in ("VBIOS 96.00.89.00.01, cuDNN 9.10.2.21", "0000:1b:00.0", "gpu-70 mygpu-7")),
        ("<process_name>/home/bob/secret_project</process_name>", f"<process_name>{HIDDEN}</process_name>"),
        ("API_KEY=abcdef", f"API_KEY={HIDDEN}"),
    ],
)  # fmt: skip
def test_names_of_a_machine_are_replaced_in_the_same_form(anonymous, text, shown):
    assert anonymous(text) == shown
    assert anonymous(anonymous(text)) == shown


def test_each_name_keeps_its_number_and_captures_stay_readable(anonymous, tmp_path):
    one, two = "GPU-5a1c7b0e-4c1f-4d7e-9a55-0b1c52f0a001", "GPU-5a1c7b0e-4c1f-4d7e-9a55-0b1c52f0a002"
    shown = [anonymous(text) for text in (one, two, one)]
    assert shown[0] == shown[2] != shown[1]
    query = (unfold("gpu2", tmp_path, MACHINES) / "commands/nvidia-smi.q-x.out").read_text()
    assert parse_query(anonymous(query)) == parse_query(query) and parse_query(query)[0]
