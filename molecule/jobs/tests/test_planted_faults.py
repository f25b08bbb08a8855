"""The restart of `make demo-failure`, on one node: a rank is lost, and the job goes on from its checkpoint."""

import importlib.util

from lab_jobs import PROJECT

SPEC = importlib.util.spec_from_file_location("demo_failure", PROJECT / ".ci/demo_failure.py")
demo = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(demo)


def test_a_planted_fault_ends_as_announced(play):
    (part,) = (part for part in demo.PARTS if part.name == "restart")
    options = [word for option in part.options for word in ("-e", option)]
    run = play.launch(PROJECT / "jobs/planted-fault.yml", *options, job_nodes=1).expect(0)
    assert part.found(run.summary), run.output
    assert (run.folder / "report.html").exists()
