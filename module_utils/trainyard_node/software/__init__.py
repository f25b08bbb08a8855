# SPDX-License-Identifier: Apache-2.0
"""What is installed on this machine beside the vendors' software."""
