# SPDX-License-Identifier: Apache-2.0
"""Job files: read, checked and typed."""
