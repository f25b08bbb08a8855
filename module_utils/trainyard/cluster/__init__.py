# SPDX-License-Identifier: Apache-2.0
"""The hosts of a cluster: names, addresses, the first probe of each host, and ssh between them."""
