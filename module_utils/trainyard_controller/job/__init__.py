# SPDX-License-Identifier: Apache-2.0
"""Prepare, watch, collect, report and clean up jobs."""
