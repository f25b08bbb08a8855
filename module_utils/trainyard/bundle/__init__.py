# SPDX-License-Identifier: Apache-2.0
"""The lock of a cluster's software: exactly which files its hosts get, resolved on any machine."""
