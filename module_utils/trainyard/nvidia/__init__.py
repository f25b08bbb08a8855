# SPDX-License-Identifier: Apache-2.0
"""NVIDIA's software: stacks, the driver, CUDA, NCCL and nccl-tests."""
