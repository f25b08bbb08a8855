# SPDX-License-Identifier: Apache-2.0
"""What the verification of a cluster asks of this machine."""
