# SPDX-License-Identifier: Apache-2.0
"""A small Slurm cluster: its configuration, its health check, the output of its commands."""
