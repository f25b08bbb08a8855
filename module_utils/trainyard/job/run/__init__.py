# SPDX-License-Identifier: Apache-2.0
"""Decisions and messages of the monitors of a running job."""
