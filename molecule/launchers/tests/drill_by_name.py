"""Drills on two nodes, each with a disk of its own: what a healthy job survives, and the name of each planted defect.

Usually one of a training without a framework. TRAINYARD_DRILLS adds some of the training with PyTorch by hand: `healthy
handler rank torn seed step`, for which TRAINYARD_DRILL_LAUNCHER may be another launcher than torchrun.
"""

import json
import os

import pytest

LAUNCHER = os.environ.get("TRAINYARD_DRILL_LAUNCHER", "torchrun")
PLAIN, PYTORCH = ("direct", "tests/fixtures/drill"), (LAUNCHER, "molecule/launchers/drilled")
DRILLS = [(*PLAIN, "rank"), *((*PYTORCH, defect) for defect in os.environ.get("TRAINYARD_DRILLS", "").split())]
FOLDER = "/var/lib/trainyard/checkpoints/drilled"
# How long a drill may take, in seconds, where many others use the machine.
PATIENCE_S = 1800
# The checks that fail, and a part of the text.
MISSING = {
    "healthy": (set(), "survives: yes, a killed node costs"),
    "handler": ({"signal", "saves"}, "no rank handles SIGTERM"),
    "rank": ({"saves"}, "a rank on n2 saved step_"),
    "torn": ({"saves", "step"}, "is not complete: its archive has no end: it was cut off"),
    "seed": ({"data"}, "other data than without the fault"),
    "step": ({"step"}, "it began again at step 1, though step_"),
}


@pytest.mark.parametrize(("launcher", "source", "defect"), DRILLS)
def test_a_drill_names_what_is_missing(play, nodes, left, launcher, source, defect):
    command = ["python3" if launcher == "direct" else "python", "train.py", FOLDER]
    run = play(
        "playbooks/drill.yml",
        job_name=f"drilled-{defect}",
        job_nodes=2,
        job_ranks_per_node=1,
        job_devices="none",
        job_launcher=launcher,
        job_source=source,
        job_checkpoints=FOLDER,
        job_command=command if defect == "healthy" else [*command, defect],
        job_max_restarts=1,
        job_min_disk_mib=16,
        drill_steps=20,
        **({"job_venv": "", "job_packages": []} if launcher == "direct" else {}),
    )
    run.process.wait(PATIENCE_S)
    missing, reason = MISSING[defect]
    run.expect(2 if missing else 0, reason)
    found = json.loads((run.folder / "drill.json").read_text())
    assert {check["name"] for check in found["checks"] if check["state"] == "fail"} == missing
    assert all(left(each["job_id"]) == {} for each in found["runs"])
    for node in list(nodes.values())[:2]:
        assert node.host.run(f"ls -d {FOLDER}*").stdout == ""
