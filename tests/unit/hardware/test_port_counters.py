"""Fault counters of network ports: what of their growth speaks for a bad link."""

from __future__ import annotations

import pytest
from ansible.module_utils.trainyard.hardware.port_counters import bad_links


@pytest.mark.parametrize(
    ("before", "now", "hours", "said"),
    [
        ({"link_downed": 1}, {"link_downed": 3}, 9.0, "p lost its link 2 times"),
        ({"link_downed": 3}, {"link_downed": 1}, 9.0, "p lost its link 1 time"),
        ({"link_downed": 255}, {"link_downed": 255}, 9.0, ""),
        ({"carrier_down_count": 1}, {"carrier_down_count": None}, 9.0, ""),
        ({"rx_crc_errors": 0}, {"rx_crc_errors": 120}, 0.1, ""),
        ({"rx_crc_errors": 0}, {"rx_crc_errors": 121}, 0.1, "p rx_crc_errors +121 in 1 h"),
        ({"symbol_error": 7}, {"symbol_error": 7 + 240}, 2.0, ""),
        ({"symbol_error": 7}, {"symbol_error": 7 + 241}, 2.0, "p symbol_error +241 in 2 h"),
        # Counts that a lost peer and a full network leave on a healthy port.
        ({"local_ack_timeout_err": 0, "rx_missed_errors": 0}, {"local_ack_timeout_err": 9**9, "rx_missed_errors": 9**9},
         1.0, ""),
    ],
)  # fmt: skip
def test_what_speaks_for_a_bad_link(before, now, hours, said):
    assert bad_links({"p": before}, {"p": now}, hours) == said
