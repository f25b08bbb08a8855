# SPDX-License-Identifier: Apache-2.0
"""Slurm on this machine: its commands and its health check."""
