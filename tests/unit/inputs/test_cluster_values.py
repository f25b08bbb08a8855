"""Folders, uid and stack that no cluster can have."""

import pytest
from ansible.module_utils.trainyard.inputs import cluster_values
from ansible.module_utils.trainyard.inputs.input_variables import COMMAND_LINE, Place

FILE = Place("in group_vars/all.yml, line 3", "group_vars/all.yml")


def folder(value, place=FILE):
    return cluster_values.folder("trainyard_state", value, "/var/lib/trainyard", place)


@pytest.mark.parametrize(
    ("value", "found"),
    [
        ("~/x", "~/x in group_vars/all.yml, line 3; ~ is another folder for each user"),
        ("opt/x", "opt/x in group_vars/all.yml, line 3"),
        ("", "nothing in group_vars/all.yml, line 3"),
    ],
)
def test_a_folder_without_an_absolute_path_is_a_finding(value, found):
    (finding,) = folder(value)
    assert (finding.check, finding.found) == ("trainyard_state", found)
    assert finding.action == "write trainyard_state: /var/lib/trainyard"


SYSTEM = ["/", "//", "/.", "/a/../..", "/usr", "/etc/", "/var", "/home", "//var/lib", "/root/../etc"]


@pytest.mark.parametrize("value", SYSTEM)
def test_a_folder_of_the_system_is_a_finding_in_every_form(value):
    (finding,) = folder(value)
    assert finding.found.endswith("a folder of the system") and finding.action.startswith("name one below it")


@pytest.mark.parametrize("value", ["/opt/trainyard", "/data", "/home/jane/x", "/var/lib/trainyard", "/srv"])
def test_other_folders_have_no_finding(value):
    assert folder(value) == []


def test_root_is_a_training_user_only_without_managed_users():
    for value, found in ((0, "0 on the command line, which is root"), (-5, "-5 on the command line")):
        (finding,) = cluster_values.uid(value, True, COMMAND_LINE)
        assert finding.found == found
    assert len(cluster_values.uid(2**32 - 1, True, FILE)) == len(cluster_values.uid(-1, False, FILE)) == 1
    assert cluster_values.uid(2000, True, FILE) == cluster_values.uid(0, False, FILE) == []


@pytest.mark.parametrize("value", ["r1", 7, 1.5, ""])
def test_nodes_are_grouped_by_a_text_or_a_number(value):
    assert cluster_values.group_by("rack", {"n1": value}, COMMAND_LINE) == []


@pytest.mark.parametrize(
    ("values", "found"),
    [
        ({}, "rack on the command line, a variable that no node has"),
        ({"n1": ["a"]}, "rack on the command line, which is no text or number on n1"),
        ({"n1": None}, "rack on the command line, which is no text or number on n1"),
    ],
)
def test_nodes_are_not_grouped_by_what_none_of_them_has(values, found):
    (finding,) = cluster_values.group_by("rack", values, COMMAND_LINE)
    assert (finding.check, finding.found) == ("verify_group_by", found)
    assert finding.action == "set rack for hosts or groups of the inventory, or leave verify_group_by out"


def test_an_unknown_stack_is_named_with_the_known_ones():
    (finding,) = cluster_values.stack("cuda99", {"debian12": {}, "mine": {}}, FILE)
    assert finding.found == "'cuda99' in group_vars/all.yml, line 3"
    assert finding.expected == "one of debian12, mine"
    assert cluster_values.stack("mine", {"mine": {}}, FILE) == cluster_values.stack("", {}, FILE) == []
