# SPDX-License-Identifier: Apache-2.0
"""The accelerators and networks of this machine."""
