# SPDX-License-Identifier: Apache-2.0
"""A job on this node: its folder, its processes, the monitor that watches them."""
