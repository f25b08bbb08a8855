# SPDX-License-Identifier: Apache-2.0
"""Ascend's software, and HCCL's rank tables (docs/rank-table.md)."""
