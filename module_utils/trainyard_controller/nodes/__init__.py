# SPDX-License-Identifier: Apache-2.0
"""Visits of nodes: the agent, the fan-out, the facts that came back."""
