"""The three jobs of `make demo-failure`, on one node at the same time, as they mostly wait."""

import importlib.util

import pytest
from lab_jobs import PROJECT

SPEC = importlib.util.spec_from_file_location("demo_failure", PROJECT / ".ci/demo_failure.py")
demo = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(demo)


@pytest.fixture(scope="module")
def launched(play):
    runs = {}
    for part in demo.PARTS:
        options = [word for option in part.options for word in ("-e", option)]
        # A healthy step may take seconds on a busy machine.
        more = {"job_nodes": 1, "job_hang_timeout": 20}
        runs[part.name] = play.launch(PROJECT / "jobs/planted-fault.yml", *options, **more)
    return runs


@pytest.mark.parametrize("part", demo.PARTS, ids=lambda part: part.name)
def test_a_planted_fault_ends_as_announced(launched, part):
    run = launched[part.name].expect(0 if part.name == "restart" else 2)
    assert part.found(run.summary), run.output
    assert (run.folder / "report.html").exists()
