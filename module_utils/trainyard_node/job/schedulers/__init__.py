# SPDX-License-Identifier: Apache-2.0
"""A job that an external scheduler runs, seen from this node."""
