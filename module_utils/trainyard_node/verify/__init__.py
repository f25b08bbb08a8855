# SPDX-License-Identifier: Apache-2.0
"""What the proof of a cluster asks of this machine."""
