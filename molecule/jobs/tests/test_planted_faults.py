"""The hang and the restart of `make demo-failure`, on one node. The restart has the lost rank, too."""

import importlib.util

import pytest
from lab_jobs import PROJECT

SPEC = importlib.util.spec_from_file_location("demo_failure", PROJECT / ".ci/demo_failure.py")
demo = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(demo)
PARTS = [part for part in demo.PARTS if part.name != "lost-rank"]


@pytest.fixture(scope="module")
def launched(play):
    runs = {}
    for part in PARTS:
        options = [word for option in part.options for word in ("-e", option)]
        # A healthy step may take seconds on a busy machine.
        more = {"job_nodes": 1, "job_hang_timeout": 20}
        runs[part.name] = play.launch(PROJECT / "jobs/planted-fault.yml", *options, **more)
    return runs


@pytest.mark.parametrize("part", PARTS, ids=lambda part: part.name)
def test_a_planted_fault_ends_as_announced(launched, part):
    run = launched[part.name].expect(0 if part.name == "restart" else 2)
    assert part.found(run.summary), run.output
    assert (run.folder / "report.html").exists()
