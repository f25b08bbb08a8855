# SPDX-License-Identifier: Apache-2.0
"""This machine as a node of a cluster: what it is, its names, its keys, its logins to others."""
