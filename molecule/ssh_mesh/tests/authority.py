"""A temporary authority for the tests that sign, revoke or expire."""

import pytest

SHORT = {"ssh_mesh_validity": "2d", "ssh_mesh_renew_before": "1h"}


@pytest.fixture(scope="module")
def throwaway(tmp_path_factory, run_playbook, own_authority_again):
    """Return the folder of a temporary authority, whose first certificates, of n1 and n2, expire after two days."""
    folder = tmp_path_factory.mktemp("authority") / "ssh_ca"
    run_playbook("changed.yml", "--limit", "n1,n2", **SHORT, ssh_mesh_ca_dir=str(folder)).expect(0)
    return folder


@pytest.fixture(scope="module")
def own_authority_again(run_playbook):
    """Return a function that returns all nodes to the lab's own authority; at the end it has run in any case."""
    runs = []

    def back():
        runs.append(run_playbook("changed.yml").expect(0))

    yield back
    if not runs:
        back()
