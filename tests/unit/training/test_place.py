"""How a OneFlow script finds its place: by its launch module's variables, or out of a list of machines."""

import pytest
from place import PlaceError, place

LAUNCHED = {"MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "29500", "WORLD_SIZE": "4", "RANK": "3", "LOCAL_RANK": "1"}
LISTED = {"ONEFLOW_MACHINES": "10.0.0.1,10.0.0.2", "ONEFLOW_MACHINE_ID": "1", "ONEFLOW_CTRL_PORT": "9988"}


def test_under_the_launch_module_it_is_what_that_says():
    assert place({**LAUNCHED, "PATH": "/usr/bin"}) == LAUNCHED


def test_each_machine_of_a_list_is_one_rank_and_the_first_the_master():
    assert place({**LISTED, "ONEFLOW_DEVICE_NUM": "1"}) == {
        "MASTER_ADDR": "10.0.0.1",
        "MASTER_PORT": "9988",
        "WORLD_SIZE": "2",
        "RANK": "1",
        "LOCAL_RANK": "0",
    }


def test_without_either_it_trains_alone():
    assert place({"PATH": "/usr/bin"}) == {}


@pytest.mark.parametrize(
    ("environment", "said"),
    [
        ({"MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "1"}, "WORLD_SIZE, RANK, LOCAL_RANK not set: the launcher must"),
        ({"ONEFLOW_MACHINES": "10.0.0.1", "ONEFLOW_MACHINE_ID": "0"}, "ONEFLOW_CTRL_PORT not set beside ONEFLOW_MACHI"),
        ({**LISTED, "ONEFLOW_DEVICE_NUM": "8"}, "ONEFLOW_DEVICE_NUM is 8: a process of OneFlow 0.5 and newer uses one"),
        ({**LISTED, "ONEFLOW_MACHINE_ID": "2"}, "ONEFLOW_MACHINE_ID is 2, but ONEFLOW_MACHINES has 2 machines"),
    ],
)
def test_a_missing_place_is_reported(environment, said):
    with pytest.raises(PlaceError, match=said):
        place(environment)
