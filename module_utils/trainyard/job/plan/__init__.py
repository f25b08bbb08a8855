# SPDX-License-Identifier: Apache-2.0
"""The plan of a job and the checks before its start."""
