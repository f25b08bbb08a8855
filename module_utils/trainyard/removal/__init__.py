# SPDX-License-Identifier: Apache-2.0
"""Taking trainyard off a node: the record of what was there before, and the plan that brings it back."""
