# SPDX-License-Identifier: Apache-2.0
"""Make the connection to a host as Ansible's own executor of tasks does, for code that is no task on that host."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

from ansible import constants as C
from ansible.errors import AnsibleError
from ansible.playbook.play_context import PlayContext
from ansible.plugins.loader import become_loader, connection_loader


def opened(
    kind: str,
    become_method: str | None,
    variables: Mapping[str, Any],
    templar: Any,
    attributes: Mapping[str, Any],
    context: PlayContext,
) -> tuple[Any, Any]:
    """Return the connection plugin of a host and its become plugin, with their options. Raises AnsibleError.

    `attributes` are those of the task or play; without `become_method` the become plugin is None.
    """
    connection = connection_loader.get(kind, context, None)
    if connection is None:
        raise AnsibleError(f"the connection plugin {kind!r} was not found")
    become = become_loader.get(become_method) if become_method else None
    if become_method and become is None:
        raise AnsibleError(f"the become plugin {become_method!r} was not found")
    connection.set_become_plugin(become)
    keys = {**attributes, "timeout": context.timeout}
    keys.pop("retries", None)
    if context.password:
        keys["password"] = context.password
    _set_options("connection", connection, variables, templar, keys)
    # A query goes through standard input, which a plugin might take for a terminal's.
    with contextlib.suppress(KeyError, AnsibleError):
        connection.set_option("pipelining", True)
    _set_options("shell", connection._shell, variables, templar, keys)
    if become is not None:
        if context.become_pass:
            keys["become_pass"] = context.become_pass
        _set_options("become", become, variables, templar, keys)
    return connection, become


def _set_options(kind: str, plugin: Any, variables: Mapping[str, Any], templar: Any, keys: Mapping[str, Any]) -> None:
    options = {
        name: templar.template(variables[name])
        for name in C.config.get_plugin_vars(kind, plugin._load_name)
        if name in variables
    }
    if getattr(plugin, "allow_extras", False):
        prefix = f"ansible_{plugin.extras_prefix}_"
        options["_extras"] = {
            name: templar.template(value)
            for name, value in variables.items()
            if name.startswith(prefix) and name not in options
        }
    plugin.set_options(task_keys=keys, var_options=options)
