# SPDX-License-Identifier: Apache-2.0
"""What people read: the pages of jobs and proofs, and the text that ends a launch."""
