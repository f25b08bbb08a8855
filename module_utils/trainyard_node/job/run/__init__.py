# SPDX-License-Identifier: Apache-2.0
"""A job on this node: its processes, its folder and the monitor."""
