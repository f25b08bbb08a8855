"""The usual value of several hosts."""

from ansible.module_utils.trainyard.base.majority import usual


def test_the_most_common_value_counts_and_of_several_the_first_or_by_ties():
    assert usual(["a", "b", "b"], "") == "b"
    assert usual(iter(["b", "a", "a", "b"]), "") == "b"
    assert usual([4, 8, 8, 4], 0, ties=int) == 8
    assert usual([], None) is None
