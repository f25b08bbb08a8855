# SPDX-License-Identifier: Apache-2.0
"""The verification of a cluster: what each phase finds, and the report of all."""
