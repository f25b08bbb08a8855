# SPDX-License-Identifier: Apache-2.0
"""Ascend's software on this machine."""
