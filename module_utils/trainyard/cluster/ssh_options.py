# SPDX-License-Identifier: Apache-2.0
"""Limits of ssh between nodes."""

from __future__ import annotations

# Seconds for a connection to a node: a first packet that is lost is sent again after 1 s, a second one after 2 s more.
# ansible.cfg and the defaults of ssh_mesh and verify repeat it for users to set.
CONNECT_TIMEOUT_S = 10
# For a program that starts ssh by itself (mpirun): no questions, and an end for a node that gives no answer.
UNATTENDED = f"-o BatchMode=yes -o ConnectTimeout={CONNECT_TIMEOUT_S}"
