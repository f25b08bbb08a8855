# SPDX-License-Identifier: Apache-2.0
"""Certificates, images, the files of Slurm, upgrades and removal of a cluster."""
