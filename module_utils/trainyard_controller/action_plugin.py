# SPDX-License-Identifier: Apache-2.0
"""What action plugins share that touch no machine: their options are checked, and what is unusable fails the task."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from ansible.plugins.action import ActionBase

from ..trainyard.findings.findings import FindingsError, UnusableError


class OnController(ActionBase):  # type: ignore[misc]
    """An action plugin with `spec`, its options as argument_spec has them, and `answer`. Runs once for all hosts."""

    BYPASS_HOST_LOOP = True
    _supports_check_mode = True
    spec: ClassVar[Mapping[str, Any]] = {}
    rules: ClassVar[Mapping[str, Any]] = {}

    def answer(self, given: dict[str, Any]) -> dict[str, Any]:
        """Return the result for the options given. Raises UnusableError."""
        # Each plugin has its own.
        raise NotImplementedError

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return the answer, or fail with the text of what is unusable."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        _, given = self.validate_argument_spec(dict(self.spec), **self.rules)
        try:
            return {**result, "changed": False, **self.answer(given)}
        except FindingsError as error:
            return {**result, **error.failure}
        except UnusableError as error:
            return {**result, "failed": True, "msg": str(error)}
