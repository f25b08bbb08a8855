# SPDX-License-Identifier: Apache-2.0
"""This machine as a node of a cluster: its facts, names, keys and logins to other nodes."""
