# SPDX-License-Identifier: Apache-2.0
"""Write locks and bundles, and use them."""
