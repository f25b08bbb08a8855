# SPDX-License-Identifier: Apache-2.0
"""Software beside the vendors': packages, Python environments, Open MPI, frameworks, data sets."""
