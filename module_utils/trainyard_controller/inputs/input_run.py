# SPDX-License-Identifier: Apache-2.0
"""One run of ansible-playbook: Ansible's objects that hold the variables a user gives, and the documented variables."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import yaml
from ansible import constants as C
from ansible.template import Templar
from ansible.vars.plugins import get_vars_from_inventory_sources, get_vars_from_path

from ...trainyard.inputs import input_variables
from ...trainyard.inputs.input_variables import INVENTORY, Place
from . import value_sources
from .value_sources import place_of, shown

# Roles that run on localhost, which is no member of the nodes' groups.
_ON_CONTROLLER = ("job", "verify")


class InputRun:
    """The variables of one run, as Ansible has them; changes of them take effect for the whole run."""

    def __init__(self, play: Any, playbook: Path, project: Path) -> None:
        """Take the variables out of Ansible's own objects."""
        self.play, self.playbook, self.project = play, playbook, project
        self.manager = play.get_variable_manager()
        self.inventory = self.manager._inventory
        self.loader = self.manager._loader
        self.extra: dict[str, Any] = self.manager.extra_vars
        self.specs = read_specs(project)
        self.documented = input_variables.table(self.specs)
        self.cluster_names = frozenset(self.specs[""]["all"]["options"])
        self.texts = value_sources.Texts(self.loader.get_text_file_contents)

    @cached_property
    def is_of_project(self) -> bool:
        """Whether the playbook is one of the project's, and not a user's own."""
        return self.playbook.parent in (self.project, self.project / "playbooks")

    def is_connection(self, name: str) -> bool:
        """Tell whether a playbook of the project reaches hosts by this variable."""
        return self.is_of_project and bool(value_sources.CONNECTION.fullmatch(name))

    @cached_property
    def controller_names(self) -> set[str]:
        """The variables of roles that run on localhost."""
        tables = {role: input_variables.table({role: self.specs[role]}) for role in _ON_CONTROLLER}
        return {name for role, table in tables.items() for name in table if name.startswith(f"{role}_")}

    @cached_property
    def job_files(self) -> list[str]:
        """The job files of the project, for suggestions."""
        return sorted(shown(path) for path in self.project.glob("jobs/*.yml"))

    # Cached, as all checks read it, and plugins of variables are called for each entity.
    @cached_property
    def entities(self) -> list[tuple[Any, dict[str, Any]]]:
        """All groups and hosts, with their variables in group_vars and host_vars."""
        base, found = self.loader.get_basedir(), []
        for entity in [*self.inventory.groups.values(), *self.inventory.hosts.values()]:
            beside = get_vars_from_inventory_sources(self.loader, self.inventory._sources, [entity], "task")
            found.append((entity, {**beside, **get_vars_from_path(self.loader, base, [entity], "task")}))
        return found

    def hosts_of(self, entity: Any) -> list[Any]:
        """Return a host itself, or the hosts of a group."""
        return [entity] if entity.name in self.inventory.hosts else list(entity.get_hosts())

    def compute(self) -> dict[str, Any]:
        """Return the hosts of the group compute by name."""
        group = self.inventory.groups.get("compute")
        return {host.name: host for host in group.get_hosts()} if group else {}

    def variables(self, host: Any) -> dict[str, Any]:
        """Return the variables of a host in the first play.

        Ansible's own call for a play lists all hosts and copies all variables each time. So what the play itself has
        is read once, unless that may depend on the host.
        """
        if self.play.get_vars_files() or C.DEFAULT_HASH_BEHAVIOUR != "replace":
            found: dict[str, Any] = self.manager.get_vars(play=self.play, host=host)
            return found
        below, above = self._of_play
        above = {name: value for name, value in above.items() if name not in self.extra}
        found = {**below, **self.manager.get_vars(host=host), **above}
        return {**found, "vars": found}

    @cached_property
    def _of_play(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """The variables of the play alone: below those of any host, as defaults of roles are, and above them."""
        found = self.manager.get_vars(play=self.play)
        found.pop("vars", None)
        roles = [role for role in self.play.roles if role.public]
        exported = [role.get_vars(include_params=False, only_exports=True) for role in roles]
        names = {name for given in (self.play.get_vars(), *exported) for name in given}
        return found, {name: value for name, value in found.items() if name in names}

    def value(self, host: Any, name: str) -> Any:
        """Return the value of a variable for a host. Raises AnsibleError, and KeyError when it is not set."""
        variables = self.variables(host)
        return Templar(loader=self.loader, variables=variables).template(variables[name])


def read_specs(project: Path) -> dict[str, Any]:
    """Read the argument_specs of the playbooks (under "") and of all roles."""
    files = {path.parts[-3]: path for path in sorted(project.glob("roles/*/meta/argument_specs.yml"))}
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    return {
        role: yaml.load(path.read_text(), Loader=loader)["argument_specs"]  # noqa: S506
        for role, path in {"": project / "playbooks/meta/argument_specs.yml", **files}.items()
    }


def places(variables: Mapping[str, Any], otherwise: Place = INVENTORY) -> Callable[[str], Place]:
    """Return the function that tells where a variable was written; `otherwise` stands for those of no file."""
    # The key itself carries Ansible's mark; an equal text does not.
    return lambda name: place_of(next((key for key in variables if key == name), name), otherwise)
