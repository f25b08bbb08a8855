# SPDX-License-Identifier: Apache-2.0
"""What the controller does itself: it visits nodes and keeps the folders of runs. Never sent to a node."""
