# SPDX-License-Identifier: Apache-2.0
"""Decide how a job goes on: its reports, attempts, restarts and rollbacks."""
