"""A temporary authority renews, takes a node in and leaves one out: minutes, for rules that have unit tests.

pytest tests/authority_by_name.py in the scenario's folder, after `make molecule SCENARIO=ssh_mesh`. The tests run in
this order; the last fixture returns the nodes to the lab's own authority.
"""

from authority import SHORT, own_authority_again, throwaway
from test_ssh_mesh import AS_TRAIN, refused

# Fixtures that the tests get by their names.
__all__ = ["own_authority_again", "throwaway"]


def test_a_certificate_that_expires_soon_is_renewed(run_playbook, throwaway, node):
    given, two = {"ssh_mesh_ca_dir": str(throwaway)}, ("--limit", "n1,n2")
    show = "sudo ssh-keygen -L -f /etc/trainyard/ssh/user_ed25519-cert.pub"
    before = node("n2").check_output(show)
    run_playbook("changed.yml", *two, **SHORT, **given).expect(0).changes_nothing()
    run_playbook("changed.yml", *two, "--diff", **given).expect(0, "n2: user key expires ")
    assert node("n2").check_output(show) != before


def test_a_node_joins_without_changes_on_others(run_playbook, throwaway, node, node_names):
    *others, new = node_names
    come = run_playbook("changed.yml", ssh_mesh_ca_dir=str(throwaway)).expect(0)
    # Signing on the controller counts as one change of the run's first host.
    assert [come.changes[name] for name in others] == [int(name == "n1") for name in others]
    assert come.changes[new] > 0
    assert node("n1").check_output(f"{AS_TRAIN} {new} uname -n") == new
    assert node(new).check_output(f"{AS_TRAIN} n1 uname -n") == "n1"


def test_a_node_leaves_and_the_others_stay(run_playbook, throwaway, node, node_names):
    given = {"ssh_mesh_ca_dir": str(throwaway)}
    *others, left = node_names
    without = ("--limit", ",".join(others))
    run_playbook("changed.yml", *without, ssh_mesh_revoked=[left], **given).expect(0)
    for name in others:
        assert "Permission denied (publickey)" in refused(node(left), f"{AS_TRAIN} {name} uname -n")
        assert "revoked" in refused(node(name), f"{AS_TRAIN} {left} uname -n")
    assert node("n1").check_output(f"{AS_TRAIN} n2 uname -n") == "n2"
    assert node("n2").check_output(f"{AS_TRAIN} n1 uname -n") == "n1"

    run_playbook("changed.yml", *without, ssh_mesh_revoked=[left], **given).expect(0).changes_nothing()
    both = run_playbook("changed.yml", ssh_mesh_revoked=[left], **given)
    both.fails(f"ssh_mesh_revoked on {left} found {left} is in it and among the nodes of this run")
    run_playbook("changed.yml", **given).fails(f"a revoked key of {left} expected a key that is not revoked")
