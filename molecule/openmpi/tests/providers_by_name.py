"""An existing Open MPI that is lacking, or is there already, and the preview of a build: rules that have unit tests.

pytest tests/providers_by_name.py in the scenario's folder, after `make molecule SCENARIO=openmpi`.
"""

import pytest
from test_openmpi import SITE, existing

# A fixture that the test gets by its name.
__all__ = ["existing"]


@pytest.fixture
def packages_again(existing, run_playbook):
    """Return to the packages of the system."""
    yield existing
    run_playbook("changed.yml").expect(0)


def test_an_existing_open_mpi_is_named_where_it_is_lacking_and_left_where_it_is(run_playbook, packages_again, node):
    given = {"openmpi_provider": "existing", "openmpi_prefix": SITE}
    two, last = ("--limit", ",".join(packages_again)), packages_again[-1]
    node(last).check_output(f"sudo mv {SITE}/bin/mpirun {SITE}/bin/away")
    lacking = run_playbook("changed.yml", *two, **given).fails(
        f"Open MPI cannot be used: 1 finding. Nothing was changed. 1. openmpi_prefix on {last} "
        f"found no {SITE}/bin/mpirun that answers as Open MPI"
    )
    lacking.changes_nothing()
    node(last).check_output(f"sudo mv {SITE}/bin/away {SITE}/bin/mpirun")
    run_playbook("changed.yml", *two, **given).expect(0)
    run_playbook("changed.yml", *two, **given).expect(0).changes_nothing()


def test_a_preview_names_the_building_node(run_playbook, node_names):
    first, *others = two = node_names[:2]
    done = run_playbook("changed.yml", "--limit", ",".join(two), "--check", openmpi_provider="source").expect(0)
    configure = "configure --prefix=/opt/trainyard/openmpi-4.1.8 --without-cuda --without-ucx"
    assert f"{first}: Open MPI 4.1.8 is built: {configure} --enable-mpirun-prefix-by-default" in done.text
    for name in others:
        assert f"{name}: Open MPI 4.1.8 is copied from {first}: {configure}" in done.text
