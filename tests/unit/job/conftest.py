"""A cluster of monitors on this machine, which ends with the test."""

import pytest
from job_cluster import Cluster


@pytest.fixture
def cluster(tmp_path):
    made = []

    def make(*modes, **changes):
        made.append(Cluster(tmp_path / f"cluster{len(made)}", *modes, **changes))
        return made[-1].__enter__()

    yield make
    for item in made:
        item.__exit__()
