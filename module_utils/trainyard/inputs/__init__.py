# SPDX-License-Identifier: Apache-2.0
"""Check what users give before any play: variables, job files, hosts, tags, inventories."""
