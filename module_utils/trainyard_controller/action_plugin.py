# SPDX-License-Identifier: Apache-2.0
"""Bases of the action plugins, which run once for all hosts. The documentation of their options is in library/."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import yaml
from ansible.plugins.action import ActionBase
from ansible.template import Templar, trust_as_template

from ..trainyard.findings.adhoc import COLLECTION
from ..trainyard.findings.findings import FindingsError, UnusableError
from . import agent_code
from .fan_out import FanOut
from .project import MODULES, ROOT, short
from .run_folder import NotWrittenError

# Each task runs in a process of its own. It takes this from Ansible's process, which loads plugins, and need not read
# the files of the agent again.
agent_code.digest()


class OnceForAll(ActionBase):  # type: ignore[misc]
    """An action plugin with `answer`; exceptions for unusable input become the task's failure."""

    BYPASS_HOST_LOOP = True
    task_vars: Mapping[str, Any]

    def answer(self, given: dict[str, Any]) -> dict[str, Any]:
        """Return the result for the options. Raises UnusableError or NotWrittenError."""
        raise NotImplementedError

    def options(self) -> dict[str, Any]:
        """Return the task's options."""
        return dict(self._task.args)

    def fan_out(self) -> FanOut:
        """Return connections to the hosts of the inventory, apart from those of other calls."""
        return FanOut(self, self.task_vars)

    def value_on(self, host: str, name: str) -> Any:
        """Return a variable as this task would see it on another host, defaults of its role included."""
        hostvars, task = self.task_vars["hostvars"], self._task
        variables = hostvars._variable_manager.get_vars(
            play=task.get_play(), host=hostvars._inventory.get_host(host), task=task, include_hostvars=False
        )
        variables.update(hostvars=hostvars, ansible_search_path=task.get_search_path())
        variables.update({each: self.task_vars[each] for each in self.task_vars if each.startswith("ansible_play_")})
        return Templar(loader=self._loader, variables=variables).template(trust_as_template("{{ " + name + " }}"))

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return the answer, or the failure."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        self.task_vars = task_vars or {}
        try:
            return {**result, "changed": False, **self.answer(self.options())}
        except FindingsError as error:
            return {**result, **error.failure}
        except UnusableError as error:
            return {**result, "failed": True, "msg": str(error)}
        except NotWrittenError as error:
            run_dir = self._task.args.get("run_dir") or Path(error.filename).parent
            return {**result, **error.failure(Path(run_dir))}


class Documented(OnceForAll):
    """An action plugin whose options are checked against their documentation.

    Others take large options, which the check would copy, or paths on nodes, which it would expand on the controller.
    """

    rules: ClassVar[Mapping[str, Any]] = {}

    def options(self) -> dict[str, Any]:
        """Return the options with their documented types and defaults."""
        checked: dict[str, Any] = self.validate_argument_spec(documented_options(self._load_name), **self.rules)[1]
        return checked


def documented_options(action: str) -> dict[str, Any]:
    """Return the documented options of an action, those of its fragments included, in the form of an argument_spec."""
    document = yaml.safe_load(_texts(MODULES / f"{short(action)}.py")["DOCUMENTATION"])
    options: dict[str, Any] = document.get("options", {})
    fragments = document.get("extends_documentation_fragment", [])
    for fragment in [fragments] if isinstance(fragments, str) else fragments:
        name, _, part = fragment.removeprefix(f"{COLLECTION}.").partition(".")
        texts = _texts(ROOT / f"plugins/doc_fragments/{name}.py")
        options |= yaml.safe_load(texts[part.upper() or "DOCUMENTATION"]).get("options", {})
    return _specified(options)


def _specified(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return options with their documented suboptions where an argument_spec has them."""
    return {
        name: {**option, **({"options": _specified(option["suboptions"])} if "suboptions" in option else {})}
        for name, option in options.items()
    }


def _texts(path: Path) -> dict[str, str]:
    """Return the texts that a file assigns to names. It is not run: Python cannot run a file of a collection."""
    assigned = (node for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(node, ast.Assign))
    return {
        node.targets[0].id: node.value.value
        for node in assigned
        if isinstance(node.targets[0], ast.Name)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    }
