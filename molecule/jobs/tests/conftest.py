"""The tests of jobs share the nodes with a cluster of Slurm, which ends with them."""

import pytest
from lab_jobs import CHOSEN


@pytest.fixture(scope="session", autouse=True)
def other_scenarios_have_no_slurm(nodes):
    """Stop Slurm for good, unless it was chosen by name: other scenarios test nodes without it."""
    yield
    units = "systemctl list-unit-files --no-legend 'slurm*' | cut -d' ' -f1"
    for node in nodes.values() if not CHOSEN else ():
        node.host.check_output(f"systemctl disable --quiet --now $({units})")
