# SPDX-License-Identifier: Apache-2.0
"""A job from its file to its end: specification, placement, plan, preflight, progress, failure, record."""
