"""What roles say of what they installed, as checks."""

import pytest
from ansible.module_utils.trainyard.verify.software import check_role

AGAIN = "ansible-playbook site.yml -i mine"
HOSTS = ["n1", "n2", "n3"]
HOLDS = {"fault": ""}


def test_a_role_that_holds_everywhere_is_one_check_that_passes():
    (check,) = check_role("nccl", HOSTS, dict.fromkeys(HOSTS, HOLDS), AGAIN)
    assert (check.state, check.hosts, check.name) == ("pass", (), "nccl")


def test_equal_faults_of_nodes_are_one_check_that_names_them():
    fault = {"fault": "pytorch: torch 2.12.0\nfound instead", "all": False}
    other = {"fault": "no environment", "all": False}
    checks = check_role("pytorch", [*HOSTS, "n4"], {"n1": fault, "n2": HOLDS, "n3": fault, "n4": other}, AGAIN)
    assert [(check.state, check.hosts, check.reason) for check in checks] == [
        ("fail", ("n1", "n3"), "pytorch: torch 2.12.0"),
        ("fail", ("n4",), "no environment"),
    ]
    assert checks[0].found == "pytorch: torch 2.12.0\nfound instead"
    assert checks[0].action.endswith("ansible-playbook site.yml -i mine --tags pytorch")


@pytest.mark.parametrize(("all_nodes", "named"), [(True, ()), (False, ("n1",))])
def test_a_fault_ends_the_verification_of_the_other_nodes_which_say_nothing_then(all_nodes, named):
    (check,) = check_role("nccl", HOSTS, {"n1": {"fault": "NCCL is not the same: 1 finding.", "all": all_nodes}}, AGAIN)
    assert (check.state, check.hosts) == ("fail", named)


def test_a_node_without_a_word_is_unknown_and_never_a_pass():
    checks = check_role("rdma", HOSTS, {"n1": HOLDS, "n2": HOLDS}, AGAIN)
    assert [(check.state, check.hosts) for check in checks] == [("unknown", ("n3",))]
