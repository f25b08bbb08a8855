# SPDX-License-Identifier: Apache-2.0
"""Hand jobs to Slurm or a Kubernetes cluster, and query these."""
