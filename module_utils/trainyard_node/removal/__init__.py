# SPDX-License-Identifier: Apache-2.0
"""The record of a node before trainyard, and its use: read, keep, undo."""
