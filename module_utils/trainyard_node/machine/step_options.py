# SPDX-License-Identifier: Apache-2.0
"""Options of a module with steps: each step takes its own, and rejects those of other steps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Spec = Mapping[str, Mapping[str, Any]]


def options_of_step(steps: Mapping[str, Spec], given: Mapping[str, Any] | None) -> dict[str, Mapping[str, Any]]:
    """Return the argument_spec of the requested step.

    Without a known step it has the options of all steps, as documented, and AnsibleModule rejects the step.
    """
    found: dict[str, Mapping[str, Any]] = {"step": {"type": "str", "choices": [*steps], "required": True}}
    own = steps.get(str((given or {}).get("step")))
    if own is not None:
        return {**found, **own}
    for spec in steps.values():
        for name, option in spec.items():
            required = all(each.get(name, {}).get("required") for each in steps.values())
            found[name] = {**found.get(name, {}), **option, "required": required}
    return found
