# SPDX-License-Identifier: Apache-2.0
"""What this node keeps and sends of a job: metrics, events, the kernel log, masked secrets."""
