# SPDX-License-Identifier: Apache-2.0
"""Collect on a node what explains a failure: logs, stacks, devices, checkpoints."""
