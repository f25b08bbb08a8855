# SPDX-License-Identifier: Apache-2.0
"""Start the ranks of a node as processes, and stop them."""
