# SPDX-License-Identifier: Apache-2.0
"""The monitor of a node: its loops, its connections, its next attempt."""
