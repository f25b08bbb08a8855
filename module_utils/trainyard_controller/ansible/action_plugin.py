# SPDX-License-Identifier: Apache-2.0
"""Bases of the action plugins, which run once for all hosts. The documentation of their options is in library/."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import yaml
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from ansible.plugins.action import ActionBase
from ansible.template import Templar, trust_as_template

from ...trainyard.base.adhoc import COLLECTION
from ...trainyard.base.findings import FindingsError, UnusableError
from ..nodes import agent_code
from ..nodes.fan_out import FanOut
from ..runs.project import MODULES, ROOT, short
from ..runs.run_folder import NotWrittenError

# Each task runs in a process of its own. It takes this from Ansible's process, which loads plugins, and need not read
# the files of the agent again.
agent_code.digest()

# Default of an option that a step of an action may lack. The step then gets the documented default.
DOCUMENTED: Any = None


class Documented(ActionBase):  # type: ignore[misc]
    """An action plugin with `answer`. Its options are checked; exceptions for unusable input become its failure."""

    BYPASS_HOST_LOOP = True
    # Further rules for the options, as ArgumentSpecValidator takes them.
    rules: ClassVar[Mapping[str, Any]] = {}
    task_vars: Mapping[str, Any]

    def answer(self, given: dict[str, Any]) -> dict[str, Any]:
        """Return the result for the options. Raises UnusableError or NotWrittenError."""
        raise NotImplementedError

    def options(self) -> dict[str, Any]:
        """Return the options with their documented types and defaults."""
        documented = documented_options(self._load_name)
        return _checked(short(self._load_name), dict(self._task.args), documented, self.rules)

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


class Steps(Documented):
    """An action plugin with a method for each choice of its option `step`.

    The parameters of the method are the options of that step, of the documented types.
    """

    def answer(self, given: dict[str, Any]) -> dict[str, Any]:
        """Return what the method of the step returns."""
        answer: dict[str, Any] = getattr(self, given.pop("step"))(**given)
        return answer

    def options(self) -> dict[str, Any]:
        """Return the options of the step with their documented types and defaults."""
        args, documented = dict(self._task.args), documented_options(self._load_name)
        name, step, choices = short(self._load_name), args.pop("step", None), documented["step"]["choices"]
        if step not in choices:
            raise UnusableError(f"{name} has the step {step!r}, expected one of {', '.join(choices)}")
        spec = step_options(type(self), step, documented)
        return {"step": step, **_checked(f"{name}, step {step}", args, spec, self.rules)}


def _checked(
    of: str, args: dict[str, Any], spec: Mapping[str, Mapping[str, Any]], rules: Mapping[str, Any]
) -> dict[str, Any]:
    """Return options with their documented types and defaults. Large ones are not copied. Raises UnusableError."""
    if unknown := sorted(args.keys() - spec.keys()):
        raise UnusableError(f"{of}: found the options {', '.join(unknown)}, expected {', '.join(spec)}")
    large = {name: args.pop(name) for name, option in spec.items() if name in args and _fits(option, args[name])}
    checked = ArgumentSpecValidator({each: spec[each] for each in spec if each not in large}, **rules).validate(args)
    if checked.error_messages:
        raise UnusableError(f"{of}: {'; '.join(checked.error_messages)}")
    return {**checked.validated_parameters, **large}


def step_options(plugin: type[Steps], step: str, documented: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of a step in the form of an argument_spec."""
    _, *parameters = inspect.signature(getattr(plugin, step)).parameters.values()
    required, optional = {"required": True, "default": None}, {"required": False}
    return {
        each.name: {**documented[each.name], **(required if each.default is each.empty else optional)}
        for each in parameters
    }


def _fits(option: Mapping[str, Any], value: Any) -> bool:
    """Tell whether a value has dictionaries where an option expects them. The check of options would copy them."""
    if "options" in option:
        return False
    if option.get("elements") == "dict":
        return isinstance(value, list) and all(isinstance(each, dict) for each in value)
    return bool(option["type"] == "dict") and isinstance(value, dict)


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
