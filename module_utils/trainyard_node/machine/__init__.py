# SPDX-License-Identifier: Apache-2.0
"""One machine: its files and tools, its users, folders that are root's alone."""
