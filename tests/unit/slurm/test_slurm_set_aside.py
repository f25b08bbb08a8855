"""Draining and resuming a node in a simulated Slurm, only for our own reason."""

from __future__ import annotations

import os

import pytest
from ansible.module_utils.trainyard_node.slurm import set_aside
from ansible.module_utils.trainyard_node.slurm.slurm_commands import SlurmError

OURS = "NVIDIA driver upgrade (trainyard)"
RECORD = "NodeName=n2 Arch=x86_64 CPUTot=2 State={state} ThreadsPerCore=1 Partitions=train\n   Comment=(null){reason}\n"
TOOL = """#!/bin/sh
case "$(basename "$0") $1" in
    "scontrol show") cat "$SLURM_RECORD" ;;
    "scontrol update") for word; do printf '%s\\n' "$word"; done >"$SLURM_UPDATE" ;;
    "squeue -h") echo "$*" >"$SLURM_UPDATE"; printf '12\\n14_3\\n' ;;
esac
"""


@pytest.fixture
def slurm(tmp_path, monkeypatch):
    """Return a function that sets the node's record, and one that reads the update."""
    for name in ("scontrol", "squeue"):
        (tmp_path / name).write_text(TOOL)
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("SLURM_RECORD", str(tmp_path / "record"))
    monkeypatch.setenv("SLURM_UPDATE", str(tmp_path / "update"))

    def record(state, reason=""):
        text = f"\n   Reason={reason} [root@2026-11-22T10:00:00]" if reason else ""
        (tmp_path / "record").write_text(RECORD.format(state=state, reason=text).replace("\n", " ") + "\n")

    def update():
        return (tmp_path / "update").read_text().splitlines() if (tmp_path / "update").exists() else []

    return record, update


def test_an_idle_node_is_drained_and_resumed(slurm):
    record, update = slurm
    record("IDLE")
    assert set_aside.set_aside("n2", OURS, check=True)
    assert update() == []
    assert set_aside.set_aside("n2", OURS)
    assert update() == ["update", "nodename=n2", "state=drain", f"reason={OURS}"]
    record("IDLE+DRAIN", OURS)
    assert set_aside.give_back("n2", OURS)
    assert update() == ["update", "nodename=n2", "state=resume"]


@pytest.mark.parametrize("reason", ["", "trainyard: GPU Xid: Xid 79", "broken fan", f"{OURS} and a broken fan"])
def test_a_node_that_others_drained_stays_drained(slurm, reason):
    record, update = slurm
    record("DRAINED", reason)
    assert not set_aside.set_aside("n2", OURS) and not set_aside.give_back("n2", OURS)
    assert update() == []


def test_a_node_that_is_not_drained_is_not_resumed(slurm):
    record, update = slurm
    record("DOWN*", OURS)
    assert not set_aside.give_back("n2", OURS)
    assert update() == []


def test_running_and_ending_jobs_count(slurm):
    assert set_aside.jobs_of("n2") == ["12", "14_3"]
    assert slurm[1]() == ["-h -w n2 -t R,CG,S,CF,SO,SI -o %i"]


def test_the_error_of_slurm_is_raised(slurm, tmp_path):
    (tmp_path / "scontrol").write_text("#!/bin/sh\necho Unable to contact slurm controller >&2\nexit 1\n")
    with pytest.raises(SlurmError, match="Unable to contact slurm controller"):
        set_aside.set_aside("n2", OURS)


def test_a_node_without_slurmd_has_no_name(tmp_path, slurm):
    (tmp_path / "proc/17").mkdir(parents=True)
    (tmp_path / "proc/17/comm").write_text("slurmctld\n")
    assert set_aside.node_name(tmp_path / "proc") == ""
    (tmp_path / "proc/18").mkdir()
    (tmp_path / "proc/18/comm").write_text("slurmd\n")
    slurm[0]("IDLE")
    assert set_aside.node_name(tmp_path / "proc") == "NodeName=n2", "the first word that Slurm record"
