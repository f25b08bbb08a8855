# SPDX-License-Identifier: Apache-2.0
"""NVIDIA's software on this machine."""
