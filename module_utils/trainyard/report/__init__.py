# SPDX-License-Identifier: Apache-2.0
"""What people read: the pages of jobs and verifications, and the text that ends a launch."""
