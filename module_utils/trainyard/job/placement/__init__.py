# SPDX-License-Identifier: Apache-2.0
"""Which ranks run on which node: placement, processes, hostfile, rank table."""
