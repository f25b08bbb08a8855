# SPDX-License-Identifier: Apache-2.0
"""What reads or changes one machine: /sys, /proc, systemd, processes. Only the standard library, from Python 3.9 on."""
