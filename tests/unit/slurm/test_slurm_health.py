"""Slurm's health check: when it drains a node, when it resumes it, and when it does neither."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys

import pytest
import yaml
from actions import PROJECT
from ansible.module_utils.trainyard.hardware.device_health import check_devices
from ansible.module_utils.trainyard.hardware.gpu_rules import PERSISTENCE
from ansible.module_utils.trainyard.slurm.health import Found, check_node, decide, read_node, recall
from ansible.module_utils.trainyard_controller.nodes import agent_code
from ansible.module_utils.trainyard_node.hardware.device_discovery import read_accelerators
from ansible.module_utils.trainyard_node.hardware.health_readings import read_devices
from ansible.module_utils.trainyard_node.hardware.network_discovery import read_networks
from ansible.module_utils.trainyard_node.hardware.npu_discovery import read_npu
from ansible.module_utils.trainyard_node.machine.tree import Outcome, Tree
from ansible.module_utils.trainyard_node.slurm import health_check
from captured_tree import NODES, unfold
from hypothesis import given
from hypothesis import strategies as st

VERIFY = NODES.parent / "verify"
ROLE = PROJECT / "roles/slurm"
# A line of scontrol 22.05, for a simulated Slurm that accepts updates.
RECORD = (
    "NodeName=n2 Arch=x86_64 CoresPerSocket=1 CPUAlloc=0 CPUTot=2 Gres={gres} NodeAddr=10.0.0.2 "
    "State={state} ThreadsPerCore=1 Partitions=train BootTime=2026-11-01T10:00:00 ExtSensorsTemp=n/s{reason}"
)
SCONTROL = """#!/bin/sh
case $1 in
    show) cat "$SLURM_RECORD" ;;
    update) for word; do printf '%s\\n' "$word"; done >"$SLURM_UPDATE" ;;
esac
"""


class NodeOfSlurm:
    """A captured machine that is a node of Slurm."""

    def __init__(self, folder, gres):
        self.folder, self.gres = folder, gres
        self.state, self.reason = "IDLE", ""
        self.root = folder / "root"
        self.settings = folder / "settings.json"
        self.set()

    def set(self, **changes):
        settings = {"min_disk_mib": 0, "folder": str(self.folder), "ignored": []}
        self.settings.write_text(json.dumps({**settings, "memory": str(self.folder / "memory.json"), **changes}))

    def is_(self, *trees, where=VERIFY):
        shutil.rmtree(self.root, ignore_errors=True)
        self.root.mkdir()
        for tree in trees:
            unfold(tree, self.root, where)

    def text(self, path, content):
        (self.root / path).write_text(content)

    def reboot(self):
        self.text("proc/sys/kernel/random/boot_id", "another\n")

    def drain(self, reason):
        self.state, self.reason = "IDLE+DRAIN", reason

    def resume(self):
        self.state, self.reason = "IDLE", ""

    def check(self):
        reason = f" Reason={self.reason} [root@2026-11-22T00:00:00]" if self.reason else ""
        (self.folder / "record").write_text(RECORD.format(gres=self.gres, state=self.state, reason=reason))
        update = self.folder / "update"
        update.unlink(missing_ok=True)
        status = health_check.main([str(self.settings), str(self.root)])
        words = update.read_text().splitlines() if update.exists() else []
        if words:
            assert words[:2] == ["update", "nodename=n2"]
        if "state=drain" in words:
            self.drain(words[3].removeprefix("reason="))
        if "state=resume" in words:
            self.resume()
        return status


@pytest.fixture
def slurm(tmp_path, monkeypatch):
    """Put a simulated scontrol on PATH; returns a factory of nodes."""
    (tmp_path / "bin").mkdir()
    scontrol = tmp_path / "bin/scontrol"
    scontrol.write_text(SCONTROL)
    scontrol.chmod(0o755)
    files = {"SLURM_RECORD": str(tmp_path / "record"), "SLURM_UPDATE": str(tmp_path / "update")}
    path = f"{scontrol.parent}{os.pathsep}{os.environ['PATH']}"
    for name, value in {"PATH": path, "SLURMD_NODENAME": "n2", **files}.items():
        monkeypatch.setenv(name, value)
    return lambda gres="gpu:2": NodeOfSlurm(tmp_path, gres)


@pytest.fixture
def node(slurm):
    machine = slurm()
    machine.is_("gpu2")
    return machine


def test_a_healthy_node_stays_in_service(node):
    assert (node.check(), node.state) == (0, "IDLE")


def test_a_faulty_gpu_drains_the_node_and_a_healthy_one_resumes_it(node):
    node.is_("gpu2", "gpu2_errors")
    assert (node.check(), node.state) == (1, "IDLE+DRAIN")
    assert node.reason == (
        "trainyard: GPU ECC errors: GPU 1: 2 uncorrected; GPU remapped rows: GPU 1: remapping pending; "
        "GPU throttling: GPU 1: hw_slowdown, hw_thermal_slowdown; GPU PCIe width: GPU 1: x8 of x16; "
        "GPU PCIe generation: GPU 1: generation 4 of 5; GPU recovery action: GPU 1: recovery action: Reset; "
        "GPU Xid: Xid 48 of 0000:43:00.0 2 times"
    )
    # An unchanged fault is not reported again.
    node.reason = "trainyard: as before"
    assert node.check() == 1
    assert node.reason.startswith("trainyard: GPU ECC errors"), "throttling, found twice, is part of the reason now"
    node.reason = "trainyard: as before"
    assert (node.check(), node.reason) == (1, "trainyard: as before")
    node.is_("gpu2")
    assert (node.check(), node.state) == (0, "IDLE")


@pytest.mark.parametrize("reason", ["new fan", "gres/gpu count reported lower than configured", "my trainyard:"])
def test_nodes_drained_by_others_stay_drained(node, reason):
    node.drain(reason)
    assert (node.check(), node.reason) == (0, reason)
    node.is_("gpu2", "gpu2_errors")
    assert (node.check(), node.reason) == (1, reason), "their reason stays, too"


def without_answers(node):
    """Remove ECC errors and Xids from the outputs of GPUs and kernel log."""
    answer = (node.root / "commands/nvidia-smi.q-x.out").read_text()
    answer = re.sub("<current_ecc>.*?</current_ecc>", "<current_ecc>N/A</current_ecc>", answer)
    node.text("commands/nvidia-smi.q-x.out", answer)
    node.text("commands/journalctl.dmesg.rc", "1\n")


def test_unknown_results_neither_drain_nor_resume(node):
    without_answers(node)
    assert (node.check(), node.state) == (0, "IDLE")
    node.is_("gpu2", "gpu2_errors")
    node.check()
    node.is_("gpu2")
    without_answers(node)
    assert (node.check(), node.state) == (0, "IDLE+DRAIN"), "it was drained for ECC errors, which are unknown now"
    node.is_("gpu2")
    node.check()
    assert node.state == "IDLE"


def test_an_xid_counts_until_a_reboot_or_a_resume(node):
    log = "NVRM: Xid (PCI:0000:1b:00): {}, pid=0, a fault\n"
    node.text("commands/journalctl.dmesg.out", log.format(94))
    assert node.check() == 1
    assert node.reason == "trainyard: GPU Xid: Xid 94 of 0000:1b:00.0 1 time"
    # After a manual resume, the kernel log still has the line.
    node.resume()
    assert (node.check(), node.state) == (1, "IDLE")
    assert (node.check(), node.state) == (1, "IDLE")
    node.text("commands/journalctl.dmesg.out", log.format(94) * 2)
    node.check()
    assert node.reason == "trainyard: GPU Xid: Xid 94 of 0000:1b:00.0 2 times"
    node.reboot()
    node.text("commands/journalctl.dmesg.out", "Linux version 6.1\n")
    assert (node.check(), node.state) == (0, "IDLE")


def test_an_xid_of_a_program_does_not_drain(node):
    node.text("commands/journalctl.dmesg.out", "NVRM: Xid (PCI:0000:1b:00): 31, pid=1, MMU Fault\n")
    assert (node.check(), node.state) == (0, "IDLE")


def throttled(node, active):
    answer = (node.root / "commands/nvidia-smi.q-x.out").read_text()
    words = "Active" if active else "Not Active"
    reason = "clocks_event_reason_hw_thermal_slowdown"
    node.text("commands/nvidia-smi.q-x.out", re.sub(f"<{reason}>.*?<", f"<{reason}>{words}<", answer))


def test_throttling_drains_if_two_checks_in_a_row_find_it(node):
    for active, state in ((True, "IDLE"), (False, "IDLE"), (True, "IDLE"), (True, "IDLE+DRAIN"), (False, "IDLE")):
        throttled(node, active)
        node.check()
        assert node.state == state


def test_a_driver_that_hangs_twice_drains(node):
    node.text("commands/nvidia-smi.query-gpu.rc", "124\n")
    assert (node.check(), node.state) == (1, "IDLE")
    assert node.check() == 1
    assert node.reason == "trainyard: tools: nvidia-smi did not answer within 30 s"
    node.is_("gpu2")
    assert (node.check(), node.state) == (0, "IDLE")


def test_missing_gpus_drain(slurm):
    node = slurm("gpu:h100:4(S:0-1)")
    node.is_("gpu2")
    node.check()
    assert node.reason == "trainyard: GPUs: 2 of 4 answer"


@pytest.mark.parametrize(("gres", "drains"), [("gpu:2", True), ("(null)", False)])
def test_a_broken_driver_drains_if_slurm_allocates_its_gpus(slurm, gres, drains):
    node = slurm(gres)
    node.is_("broken_driver", where=NODES)
    node.text("commands/nvidia-smi.query-gpu.rc", "9\n")
    node.check()
    assert node.reason.startswith("trainyard: GPUs: nvidia-smi exited with status 9: NVIDIA-SMI has failed") == drains


def test_only_a_port_that_has_worked_drains(node):
    port = "sys/class/infiniband/mlx5_3/ports/1/"
    node.text(port + "state", "1: DOWN\n")
    node.text(port + "phys_state", "3: Disabled\n")
    assert (node.check(), node.state) == (0, "IDLE")
    node.is_("gpu2")
    node.check()
    node.text(port + "state", "1: DOWN\n")
    node.text(port + "phys_state", "3: Disabled\n")
    node.reboot()
    node.check()
    assert node.reason == "trainyard: RDMA ports: mlx5_3:1 DOWN (Disabled)"
    # An operator resumes the node without the cable.
    node.resume()
    for _ in range(2):
        node.check()
        assert node.state == "IDLE"
    node.reboot()
    assert (node.check(), node.state) == (0, "IDLE")
    node.is_("gpu2")
    node.check()
    node.text(port + "rate", "100 Gb/sec (4X EDR)\n")
    node.check()
    assert node.reason == "trainyard: RDMA rate: mlx5_3:1 100 Gb/s of 400"


def test_a_faulty_npu_drains(slurm):
    node = slurm("npu:8")
    node.is_("ascend8", where=NODES)
    node.check()
    assert node.state == "IDLE"
    table = (node.root / "commands/npu-smi.info.out").read_text()
    node.text("commands/npu-smi.info.out", table.replace("| OK ", "| Alarm ", 1))
    node.check()
    assert "NPU health: NPU 0: Alarm" in node.reason


def test_ignored_checks_do_not_drain(node):
    node.is_("gpu2", "gpu2_errors")
    node.text("commands/journalctl.dmesg.out", "")
    ecc = ["GPU ECC errors", "GPU remapped rows", "GPU throttling", "GPU PCIe generation", "GPU recovery action"]
    node.set(ignored=[*ecc, "GPU PCIe width", "GPU Xid"])
    assert (node.check(), node.state) == (0, "IDLE")
    node.set(ignored=ecc)
    node.check()
    assert node.reason == "trainyard: GPU PCIe width: GPU 1: x8 of x16"


def test_a_manual_resume_counts_until_the_fault_is_gone(node):
    node.set(min_disk_mib=10**9)
    node.check()
    assert node.reason == f"trainyard: disk: less than 1000000000 MiB free in {node.folder}"
    node.resume()
    for _ in range(2):
        node.check()
        assert node.state == "IDLE"
    node.set()
    node.check()
    node.set(min_disk_mib=10**9)
    node.check()
    assert node.state == "IDLE+DRAIN"


def reading_of(tree, folder, where):
    machine = Tree(str(unfold(tree, folder, where)))
    accelerators = read_accelerators(machine)
    return read_devices(machine, accelerators, read_npu(machine, accelerators), read_networks(machine), "")


def test_the_role_lists_every_check_that_can_be_ignored(tmp_path):
    trees = {"n1": ("gpu2", VERIFY), "n2": ("ascend8", NODES)}
    readings = {host: reading_of(tree, tmp_path / host, where) for host, (tree, where) in trees.items()}
    names = {check.name for check in check_devices(readings)} - {PERSISTENCE}
    options = yaml.safe_load((ROLE / "meta/argument_specs.yml").read_text())["argument_specs"]["main"]["options"]
    assert set(options["slurm_health_ignored"]["choices"]) == {*names, "disk", health_check.HUNG}


def test_missing_persistence_mode_does_not_drain(tmp_path):
    reading = reading_of("gpu2", tmp_path, VERIFY)
    for gpu in reading["gpus"]:
        gpu["persistence"] = "Disabled"
    assert check_node(reading, {"gpu": 2}, []) == ({}, set())
    reading["gpus"][0]["uncorrected"] = 1
    assert set(check_node(reading, {"gpu": 2}, []).faults) == {"GPU ECC errors"}


def broken_settings(node):
    node.settings.write_text("{")


def broken_slurm(node):
    (node.folder / "bin/scontrol").write_text("#!/bin/sh\necho slurm_load_node error: Unable to contact >&2\nexit 1\n")


def broken_reading(node):
    (node.folder / "root/commands/nvidia-smi.q-x.out").unlink()
    (node.folder / "root/commands/nvidia-smi.q-x.out").mkdir()
    node.set(folder=str(node.folder / "nowhere"))


@pytest.mark.parametrize("broken", [broken_settings, broken_slurm, broken_reading])
@pytest.mark.parametrize("reason", ["", "trainyard: GPU Xid: Xid 79 of 0000:1b:00.0 1 time"])
def test_a_failed_check_changes_nothing(node, capsys, broken, reason):
    if reason:
        node.drain(reason)
    before = (node.state, node.reason)
    broken(node)
    assert node.check() == 2
    assert (node.state, node.reason) == before
    assert "trainyard: the check of this node failed, nothing was changed: " in capsys.readouterr().err


def test_a_slow_hccn_tool_does_not_drain(slurm, capsys):
    node = slurm("npu:8")
    node.is_("ascend8", where=NODES)
    node.text("commands/hccn_tool.link.7.rc", "124\n")
    for _ in range(2):
        assert (node.check(), node.state) == (2, "IDLE")
    assert "hccn_tool did not answer" in capsys.readouterr().err


@pytest.mark.parametrize(
    "stored", ["", "[]", '{"drained_for": [1]}', '{"ports": [1, {}]}', '{"once": {}, "accepted": {"x": 1}}']
)
def test_a_damaged_memory_is_ignored(node, stored):
    (node.root / "proc/sys/kernel/random/boot_id").unlink()
    (node.folder / "memory.json").write_text(stored)
    assert (node.check(), node.state) == (0, "IDLE")


def test_a_memory_that_cannot_be_written_does_not_prevent_a_drain(node, capsys):
    node.is_("gpu2", "gpu2_errors")
    node.set(memory=str(node.folder / "nowhere/memory.json"))
    assert (node.check(), node.state) == (1, "IDLE+DRAIN")
    assert "nowhere/memory.json cannot be written" in capsys.readouterr().err


def test_all_tools_share_one_time_limit(monkeypatch):
    now = [0.0]
    given = []

    def slow(self, name, argv, timeout, *_):
        given.append((name, timeout))
        now[0] += 25
        return Outcome(0, "")

    monkeypatch.setattr(health_check.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(Tree, "command", slow)
    tree = health_check._HurriedTree("/")
    for name in ("first", "second", "third"):
        outcome = tree.command(name, [name], 60)
    assert given == [("first", 30), ("second", 5)]
    assert outcome.status == 124 and tree.late == {"third"}


def test_a_tool_that_cannot_be_killed_does_not_block(monkeypatch, tmp_path):
    # Simulates a tool that hangs in its driver, where SIGKILL has no effect.
    monkeypatch.setattr(subprocess.Popen, "kill", lambda self: None)
    done = tmp_path / "done"
    outcome = Tree().command("sh", ["sh", "-c", f"sleep 5; touch {done}"], 0.1)
    assert outcome == (124, "no answer within 0 s")
    assert not done.exists()


def test_the_program_needs_exactly_the_files_that_the_role_installs(slurm, tmp_path):
    variables = yaml.safe_load((ROLE / "vars/main.yml").read_text())
    lib = tmp_path / variables["__slurm_health_lib"].removeprefix("/usr/local/")
    files = agent_code.program("trainyard_node/slurm/health_check.py")
    for path, text in files.items():
        target = lib / "checks" / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
    program = tmp_path / variables["__slurm_health"].removeprefix("/usr/local/")
    program.parent.mkdir()
    shutil.copy(ROLE / "files/health.py", program)
    node = slurm()
    node.is_("gpu2", "gpu2_errors")
    (tmp_path / "record").write_text(RECORD.format(gres="gpu:2", state="IDLE", reason=""))
    # -I and -S hide this project and all packages.
    argv = [sys.executable, "-I", "-S", "-X", "importtime", program, node.settings, node.root]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.splitlines()[0]) == (1, "GPU ECC errors: GPU 1: 2 uncorrected"), done.stderr
    assert "state=drain" in (tmp_path / "update").read_text().splitlines()
    lines = [line for line in done.stderr.splitlines() if "checks.trainyard" in line]
    loaded = {f"{line.rpartition('checks.')[2].replace('.', '/')}.py" for line in lines}
    packages = {name for name in loaded if (PROJECT / "module_utils" / name.removesuffix(".py")).is_dir()}
    names = {name.removesuffix(".py") + "/__init__.py" if name in packages else name for name in loaded}
    assert names == files.keys()


@pytest.mark.parametrize(
    ("gres", "devices"),
    [("(null)", {}), ("gpu:8", {"gpu": 8}), ("gpu:a:2(S:0),gpu:b:1,npu:4", {"gpu": 3, "npu": 4}), ("license:5", {})],
)
def test_allocatable_devices_are_parsed(gres, devices):
    assert read_node(RECORD.format(gres=gres, state="MIXED", reason="")).devices == devices


@given(st.lists(st.dictionaries(st.sampled_from(["disk", "GPUs", "GPU throttling"]), st.just("x"))))
def test_no_history_of_faults_leaves_a_healthy_node_drained(history):
    memory, drained = recall(None, "boot"), False
    for faults in [*history, {}]:
        node = read_node(f"State=IDLE{'+DRAIN Reason=trainyard: x' if drained else ''}")
        decision = decide(node, Found(faults, set()), memory)
        memory = json.loads(json.dumps(decision.memory))
        drained = {"drain": True, "resume": False, "": drained}[decision.action]
    assert not drained
