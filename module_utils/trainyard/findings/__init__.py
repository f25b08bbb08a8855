# SPDX-License-Identifier: Apache-2.0
"""What is said of a cluster or a job: findings, checks, and what of their texts may be shown."""
