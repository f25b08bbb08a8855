# SPDX-License-Identifier: Apache-2.0
"""Read the logs of ranks: progress, failures, their causes, hangs, stacks."""
