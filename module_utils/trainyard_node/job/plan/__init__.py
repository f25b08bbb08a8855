# SPDX-License-Identifier: Apache-2.0
"""Checks of this node before a job starts."""
