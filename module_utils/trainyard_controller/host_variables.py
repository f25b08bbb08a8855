# SPDX-License-Identifier: Apache-2.0
"""A variable as a task would see it on another host, with what the task's role has for it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ansible.plugins.action import ActionBase
from ansible.template import Templar, trust_as_template


def value_on(action: ActionBase, task_vars: Mapping[str, Any], host: str, name: str) -> Any:
    """Return the variable as this task would see it on that host. Raises AnsibleError where it cannot be said."""
    hostvars = task_vars["hostvars"]
    variables = hostvars._variable_manager.get_vars(
        play=action._task.get_play(), host=hostvars._inventory.get_host(host), task=action._task, include_hostvars=False
    )
    variables.update(hostvars=hostvars, ansible_search_path=action._task.get_search_path())
    variables.update({each: task_vars[each] for each in task_vars if each.startswith("ansible_play_")})
    return Templar(loader=action._loader, variables=variables).template(trust_as_template("{{ " + name + " }}"))
