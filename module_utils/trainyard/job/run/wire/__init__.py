# SPDX-License-Identifier: Apache-2.0
"""Declare the messages of monitors and nodes, and the files that they write."""
