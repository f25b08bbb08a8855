# SPDX-License-Identifier: Apache-2.0
"""The exit status of verify.yml and of the playbooks that measure, by their result."""

from __future__ import annotations

EXIT_CODES = {"pass": 0, "fail": 2, "unknown": 3}
