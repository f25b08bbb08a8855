# SPDX-License-Identifier: Apache-2.0
"""Measure a running job: goodput, slow ranks, checkpoints, saving."""
