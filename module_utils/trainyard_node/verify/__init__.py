# SPDX-License-Identifier: Apache-2.0
"""The facts and connections of this machine that the verification of a cluster needs."""
