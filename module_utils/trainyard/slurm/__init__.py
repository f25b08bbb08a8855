# SPDX-License-Identifier: Apache-2.0
"""A small cluster of Slurm: its configuration, its health check, what its commands print."""
