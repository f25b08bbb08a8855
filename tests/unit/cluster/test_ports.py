# SPDX-License-Identifier: Apache-2.0
import random

import pytest
from ansible.module_utils.trainyard.cluster.ports import FIRST, LAST, draw_ports, is_unused, parse_ports, port_ranges
from hypothesis import given
from hypothesis import strategies as st


@given(st.sets(st.integers(FIRST, LAST), max_size=14))
def test_port_ranges_survive_writing_and_reading(ports):
    text = port_ranges(ports)
    assert parse_ports(text) == ports
    assert set(draw_ports(text, len(ports) + 1, random.SystemRandom())) == ports
    beside = {port + step for port in ports for step in (-1, 0, 1)} | {FIRST, LAST}
    assert {port for port in beside if is_unused(port, text)} == ports


def test_only_the_longest_ranges_are_listed():
    assert port_ranges([*range(10000, 10100, 2), 20000, 20001]).endswith(",20000-20001")
    assert port_ranges([*range(10000, 10100, 2), 20000, 20001]).count(",") == 15


@pytest.mark.parametrize("text", ["", "x", "1-9999", "70000-99999", "5-1", "99999999-1", "-", "20000-10000"])
def test_bad_ranges_give_no_port(text):
    assert draw_ports(text, 3, random.SystemRandom()) == []


def test_drawn_ports_differ_and_come_from_all_ranges():
    drawn = draw_ports("10000-32767,61000-65535,1-9", 2000, random.SystemRandom())
    assert len(set(drawn)) == 2000 and min(drawn) < 11000 and max(drawn) > 65000
