"""A node is taken out of Slurm's use and given back, and only by whom it was taken. A stand-in answers for scontrol."""

from __future__ import annotations

import os

import pytest
from ansible.module_utils.trainyard_node.slurm import set_aside
from ansible.module_utils.trainyard_node.slurm.commands import SlurmError

OURS = "NVIDIA driver upgrade (trainyard)"
RECORD = "NodeName=n2 Arch=x86_64 CPUTot=2 State={state} ThreadsPerCore=1 Partitions=train\n   Comment=(null){reason}\n"
TOOL = """#!/bin/sh
case "$(basename "$0") $1" in
    "scontrol show") cat "$SLURM_SAYS" ;;
    "scontrol update") for word; do printf '%s\\n' "$word"; done >"$SLURM_TOLD" ;;
    "squeue -h") echo "$*" >"$SLURM_TOLD"; printf '12\\n14_3\\n' ;;
esac
"""


@pytest.fixture
def slurm(tmp_path, monkeypatch):
    """Return a function that sets what Slurm says, and one that reads what it was told."""
    for name in ("scontrol", "squeue"):
        (tmp_path / name).write_text(TOOL)
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("SLURM_SAYS", str(tmp_path / "says"))
    monkeypatch.setenv("SLURM_TOLD", str(tmp_path / "told"))

    def says(state, reason=""):
        said = f"\n   Reason={reason} [root@2026-11-22T10:00:00]" if reason else ""
        (tmp_path / "says").write_text(RECORD.format(state=state, reason=said).replace("\n", " ") + "\n")

    def told():
        return (tmp_path / "told").read_text().splitlines() if (tmp_path / "told").exists() else []

    return says, told


def test_an_idle_node_is_drained_and_given_back(slurm):
    says, told = slurm
    says("IDLE")
    assert set_aside.set_aside("n2", OURS, check=True)
    assert told() == []
    assert set_aside.set_aside("n2", OURS)
    assert told() == ["update", "nodename=n2", "state=drain", f"reason={OURS}"]
    says("IDLE+DRAIN", OURS)
    assert set_aside.give_back("n2", OURS)
    assert told() == ["update", "nodename=n2", "state=resume"]


@pytest.mark.parametrize("reason", ["", "trainyard: GPU Xid: Xid 79", "broken fan", f"{OURS} and a broken fan"])
def test_what_somebody_else_drained_stays_as_it_is(slurm, reason):
    says, told = slurm
    says("DRAINED", reason)
    assert not set_aside.set_aside("n2", OURS)
    assert not set_aside.give_back("n2", OURS)
    assert told() == []


def test_a_node_that_is_not_drained_is_not_resumed(slurm):
    says, told = slurm
    says("DOWN*", OURS)
    assert not set_aside.give_back("n2", OURS)
    assert told() == []


def test_jobs_that_run_or_end_there_count(slurm):
    assert set_aside.jobs_of("n2") == ["12", "14_3"]
    assert slurm[1]() == ["-h -w n2 -t R,CG,S,CF,SO,SI -o %i"]


def test_a_slurm_that_does_not_answer_is_said(slurm, tmp_path):
    (tmp_path / "scontrol").write_text("#!/bin/sh\necho Unable to contact slurm controller >&2\nexit 1\n")
    with pytest.raises(SlurmError, match="Unable to contact slurm controller"):
        set_aside.set_aside("n2", OURS)


def test_a_node_without_slurmd_is_none_of_slurms(tmp_path, slurm):
    (tmp_path / "proc/17").mkdir(parents=True)
    (tmp_path / "proc/17/comm").write_text("slurmctld\n")
    assert set_aside.node_name(tmp_path / "proc") == ""
    (tmp_path / "proc/18").mkdir()
    (tmp_path / "proc/18/comm").write_text("slurmd\n")
    slurm[0]("IDLE")
    assert set_aside.node_name(tmp_path / "proc") == "NodeName=n2", "the first word that Slurm says"
