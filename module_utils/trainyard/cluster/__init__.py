# SPDX-License-Identifier: Apache-2.0
"""The hosts of a cluster: names, addresses, the first look at each, and ssh among them."""
