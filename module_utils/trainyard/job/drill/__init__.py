# SPDX-License-Identifier: Apache-2.0
"""The survival drill of a job: its runs, what is done to each, and what follows from their steps and losses."""
