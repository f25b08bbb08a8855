# SPDX-License-Identifier: Apache-2.0
"""What is installed beside the vendors' software: packages, Python environments, Open MPI, frameworks, data sets."""
