# SPDX-License-Identifier: Apache-2.0
"""What a job file says, checked and typed."""
