# SPDX-License-Identifier: Apache-2.0
import random

import pytest
from ansible.module_utils.trainyard.cluster.ports import FIRST, LAST, draw_ports, parse_ports, port_ranges
from hypothesis import given
from hypothesis import strategies as st


@given(st.sets(st.integers(FIRST, LAST), max_size=14))
def test_what_is_said_of_ports_is_read_and_drawn_again(ports):
    said = port_ranges(ports)
    assert parse_ports(said) == ports
    assert set(draw_ports(said, len(ports) + 1, random.SystemRandom())) == ports


def test_of_many_ranges_the_longest_are_said():
    assert port_ranges([*range(10000, 10100, 2), 20000, 20001]).endswith(",20000-20001")
    assert port_ranges([*range(10000, 10100, 2), 20000, 20001]).count(",") == 15


@pytest.mark.parametrize("said", ["", "x", "1-9999", "70000-99999", "5-1", "99999999-1", "-", "20000-10000"])
def test_what_a_node_says_gives_no_port_outside_the_bounds(said):
    assert draw_ports(said, 3, random.SystemRandom()) == []


def test_drawn_ports_differ_and_come_from_the_whole():
    drawn = draw_ports("10000-32767,61000-65535,1-9", 2000, random.SystemRandom())
    assert len(set(drawn)) == 2000 and min(drawn) < 11000 and max(drawn) > 65000
