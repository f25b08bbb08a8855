# SPDX-License-Identifier: Apache-2.0
"""Read measurements of a verification, and write its report."""
