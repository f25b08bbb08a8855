# SPDX-License-Identifier: Apache-2.0
"""Software of this machine beside the vendors'."""
