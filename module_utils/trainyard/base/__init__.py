# SPDX-License-Identifier: Apache-2.0
"""Findings and checks of a cluster or a job, and the texts that reports may show."""
