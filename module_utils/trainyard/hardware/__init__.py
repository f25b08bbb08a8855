# SPDX-License-Identifier: Apache-2.0
"""Accelerators, network interfaces and RDMA ports: what tools say of them, and whether they are well."""
