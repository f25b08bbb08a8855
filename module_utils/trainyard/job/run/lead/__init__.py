# SPDX-License-Identifier: Apache-2.0
"""Choose the head of a job, and number its nodes anew."""
