# SPDX-License-Identifier: Apache-2.0
"""What users give, looked at before the first play: the one place through which all of it enters.

`-e job=FILE` is read, texts become what their variables are documented to be, misspelt names are refused, and the
documented defaults of the cluster get their place below everything that the inventory says. The rules are in
module_utils/trainyard/inputs/variables.py and job_file.py; what is found is said at once, and nothing is done then.
"""

from __future__ import annotations

DOCUMENTATION = r"""
name: trainyard_input
type: aggregate
short_description: Looks at what users give, before anything is done
description:
  - Runs by itself, beside any standard output.
  - Ends ansible-playbook with status 2 and all findings where a variable cannot be what it is given to be.
"""

import functools
import gc
import os
import re
import traceback
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import ansible.module_utils
import yaml
from ansible import constants as C
from ansible import context
from ansible.errors import AnsibleError, AnsibleTemplateSyntaxError, AnsibleUndefinedVariable
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from ansible.parsing.splitter import parse_kv
from ansible.plugins.callback import CallbackBase
from ansible.plugins.loader import filter_loader, test_loader
from ansible.template import Templar, trust_as_template
from ansible.utils.vars import combine_vars
from ansible.vars.plugins import get_vars_from_inventory_sources, get_vars_from_path

PROJECT = Path(__file__).resolve().parents[2]
# The plugin loader knows the project's module_utils; Python's own import does not yet.
if str(PROJECT / "module_utils") not in ansible.module_utils.__path__:
    ansible.module_utils.__path__.append(str(PROJECT / "module_utils"))

from ansible.module_utils.trainyard.cluster.hosts import inventory_findings
from ansible.module_utils.trainyard.findings.findings import Finding, render
from ansible.module_utils.trainyard.inputs import cluster_values, job_file, nothing_to_do
from ansible.module_utils.trainyard.inputs import variables as inputs
from ansible.module_utils.trainyard.inputs.variables import COMMAND_LINE, INVENTORY, Place
from ansible.module_utils.trainyard_controller import input_files as given_files
from ansible.module_utils.trainyard_controller import playbook_call, run_folder
from ansible.module_utils.trainyard_controller import value_sources as given_values
from ansible.module_utils.trainyard_controller.value_sources import OF_A_PLAY, leaves, place_of, shown

# One value of these for all nodes and for the controller, which plans with it.
OF_THE_CLUSTER = ("trainyard_cluster", "trainyard_root", "trainyard_state", "trainyard_uid", "trainyard_user")
# The choice of an NVIDIA stack, which a role checks where there are hosts for it.
STACKS = ("nvidia_stack", "nvidia_stack_own")
# Roles whose work is done on localhost, which is no member of the nodes' groups.
ON_CONTROLLER = ("job", "verify")
# They apply roles with rolespec_validate: false, as what is given for a role is looked at here, once for all hosts.
CHECKED_HERE = (PROJECT / "site.yml", PROJECT / "playbooks/provision.yml")
# Folders of the playbooks that users call.
PLAYBOOKS = (PROJECT, PROJECT / "playbooks")
# Those that write to trainyard_runs what they find.
KEEP_RUNS = ("launch.yml", "site.yml", *nothing_to_do.HOSTS)
# Variables of a host by which Ansible reaches it.
CONNECTION = ("ansible_host", "ansible_port", "ansible_user", "ansible_ssh_private_key_file", "ansible_ssh_common_args")


def read_specs() -> dict[str, Any]:
    """Read the argument_specs of the playbooks and of all roles, by the role's name."""
    files = {path.parts[-3]: path for path in sorted(PROJECT.glob("roles/*/meta/argument_specs.yml"))}
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    return {
        role: yaml.load(path.read_text(), Loader=loader)["argument_specs"]  # noqa: S506
        for role, path in {"": PROJECT / "playbooks/meta/argument_specs.yml", **files}.items()
    }


def catalog() -> dict[str, Any]:
    """Read the NVIDIA stacks that the project knows."""
    path = PROJECT / "roles/nvidia_stack/vars/main/stacks.yml"
    stacks: dict[str, Any] = yaml.safe_load(path.read_text())["__nvidia_stack_catalog"]
    return stacks


class CallbackModule(CallbackBase):
    """See the module's docstring."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "aggregate"
    CALLBACK_NAME = "trainyard_input"
    CALLBACK_NEEDS_ENABLED = False

    def v2_playbook_on_start(self, playbook: Any) -> None:
        """Look at everything that was given, and end here where something is wrong with it."""
        plays = playbook.get_plays()
        if not plays:
            return
        # As ansible-playbook does right after this: variables beside the playbook are found by it.
        plays[0].get_loader().set_basedir(playbook._basedir)
        try:
            given = Given(plays[0], Path(playbook._file_name).resolve())
            findings = playbook_call.findings(playbook, plays, PROJECT) or given.look()
        except Exception as error:
            # Ansible would print a warning, and go on with what nobody has checked.
            self._display.vvv(traceback.format_exc())
            findings = [inputs.unchecked(str(error) or type(error).__name__)]
        if findings:
            self._display.display(render(findings, inputs.HEADLINE), color=C.COLOR_ERROR)
            raise SystemExit(2)
        # Each task on each host is a process of its own: it inherits what is loaded here, and would load it again.
        for plugins in (filter_loader, test_loader):
            next(iter(plugins.all()), None)
        # Whatever is there now stays to the end: a collection would write to all of it, in each process anew.
        gc.freeze()


class Given:
    """What was given to one run of ansible-playbook."""

    def __init__(self, play: Any, playbook: Path) -> None:
        """Take the variables out of Ansible's own objects."""
        self.play = play
        self.is_launch = playbook == PROJECT / "launch.yml"
        self.keeps_runs = playbook.name in KEEP_RUNS and playbook.parent in PLAYBOOKS
        # Nobody knows which of these hosts a playbook of the user's own needs.
        self.connection = CONNECTION if playbook.parent in PLAYBOOKS else ()
        self.manager = play.get_variable_manager()
        self.inventory = self.manager._inventory
        self.loader = self.manager._loader
        self.extra: dict[str, Any] = self.manager.extra_vars
        specs = read_specs()
        self.known = inputs.table(specs)
        self.builds = playbook in CHECKED_HERE
        self.of_roles = inputs.options_of_roles(specs) if self.builds else {}
        self.project = frozenset(specs[""]["all"]["options"])
        self.on_controller = {
            name for role in ON_CONTROLLER for name in inputs.table({role: specs[role]}) if name.startswith(f"{role}_")
        }
        # Where the inventory says what the cluster is, and what is written in files of variables, by path.
        self.written: dict[str, Place] = {}
        self.texts = given_values.Texts(self.loader.get_text_file_contents)
        self.job_files = sorted(shown(path) for path in PROJECT.glob("jobs/*.yml"))

    def look(self) -> list[Finding]:
        """Put everything right, and return what cannot be."""
        findings = self.options() + self.job()
        places = {name: place_of(name) for name in self.extra}
        findings += self.misspelt(places) + self.texts.retyped(self.extra)
        changes, wrong = inputs.converted(self.extra, places.__getitem__, self.known, self.loader.load)
        self.extra.update(
            {name: given_values.with_place_of(value, self.extra[name]) for name, value in changes.items()}
        )
        findings += wrong + self.in_inventory()
        self.set_defaults()
        findings += self.undefined() + self.seen_from_controller() + self.names_of_nodes() + self.of_cluster()
        if not findings:
            findings = self.of_other_values() + self.runs()
        if self.is_launch and not findings:
            findings = self.launch()
        return findings

    def options(self) -> list[Finding]:
        """Put the options -e right that Ansible has split at blanks; of several for a variable the last one holds."""
        options = [each for each in context.CLIARGS.get("extra_vars") or () if each.strip()]
        whole = inputs.whole_options(options, self.known, self.loader.load)
        given: dict[str, Any] = {}
        findings = []
        for option in options:
            if option in whole:
                values = {option.partition("=")[0].strip(): trust_as_template(whole[option])}
            elif option.startswith("@"):
                values = self.loader.load_from_file(option[1:], trusted_as_template=True)
            elif option.startswith(("[", "{")):
                values = self.loader.load(option)
            else:
                values = parse_kv(option)
                rest = str(values.pop("_raw_params", ""))
                findings += [inputs.no_variable(option, rest)] if rest else []
            both = combine_vars(given, values)
            # A name knows where it stands: that of the last option, whose value holds.
            given = {name: both[name] for name in (*(each for each in given if each not in values), *values)}
        # Ansible makes a variable of a word such as lr=1 in an option that it splits.
        self.extra.clear()
        self.extra.update(given)
        self.extra.pop("_raw_params", None)
        return findings

    def job(self) -> list[Finding]:
        """Read the job file of -e job=FILE; what was given besides wins."""
        if "job" not in self.extra:
            return []
        given = self.extra.pop("job")
        if not isinstance(given, str):
            return [job_file.no_path(given)]
        asked = os.path.expanduser(given)  # noqa: PTH111
        other = place_of(next((name for name in self.extra if name in ("job_name", "job_command")), None)).file
        path = next((each for each in (Path.cwd() / asked, PROJECT / asked) if each.is_file()), None)
        if path is None:
            return [job_file.missing(asked, self.job_files)]
        if other and Path(other).resolve() != path.resolve():
            return [job_file.two_jobs(shown(path), other)]
        unreadable = given_files.fault(path, shown(path), "job file")
        if unreadable:
            return [unreadable]
        text = path.read_text(errors="replace") if os.access(path, os.R_OK) else ""
        load = functools.partial(self.loader.load_from_file, str(path), trusted_as_template=True)
        data, fault = job_file.read(shown(path), text, load)
        if fault:
            return [fault]
        for name, value in data.items():
            self.extra.setdefault(name, value)
        return []

    def entities(self) -> Iterator[tuple[Any, dict[str, Any]]]:
        """Return all groups and hosts, with the variables that files in group_vars and host_vars have for them."""
        base = self.loader.get_basedir()
        for each in [*self.inventory.groups.values(), *self.inventory.hosts.values()]:
            beside = get_vars_from_inventory_sources(self.loader, self.inventory._sources, [each], "task")
            yield each, {**beside, **get_vars_from_path(self.loader, base, [each], "task")}

    def misspelt(self, places: Mapping[str, Place]) -> list[Finding]:
        """Find names that no argument_specs have: of extra variables, with their places, and in the inventory."""
        named: dict[str, dict[Place, None]] = {}
        used: set[str] = set()
        given = [variables for each, filed in self.entities() for variables in (each.vars, filed)]
        for variables in given:
            for name, value in variables.items():
                if name not in self.known and not OF_A_PLAY.fullmatch(name):
                    named.setdefault(name, {})[place_of(name, place_of(value, INVENTORY))] = None
        for variables in [self.extra, *given]:
            used.update(word for text in leaves(variables) for word in re.findall(r"\w+", text))
        extra = {name: [place] for name, place in places.items()}
        return inputs.unknown(extra, self.known, used.union(named)) + inputs.unknown(named, self.known)

    def in_inventory(self) -> list[Finding]:
        """Put texts right that the inventory has for other values; INI knows nothing but texts."""
        findings = []
        for each, filed in self.entities():
            for variables in (each.vars, filed):
                findings += self.texts.retyped(variables)
                for name in self.project.union(STACKS).intersection(variables):
                    self.written[name] = self.places(variables)(name)
            changes, wrong = inputs.converted(each.vars, self.places(each.vars), self.known, self.loader.load)
            each.vars.update(changes)
            findings += wrong
            changes, wrong = inputs.converted(filed, self.places(filed), self.known, self.loader.load)
            # Files are not in our hands; a number in quotes is still read as one.
            quoted = [name for name, value in changes.items() if isinstance(value, (bool, list, dict))]
            findings += wrong + [
                inputs.unfit(self.known[name], filed[name], self.places(filed)(name), inputs.unquoted(self.known[name]))
                for name in quoted
            ]
        return list(dict.fromkeys(findings))

    def of_cluster(self) -> list[Finding]:
        """Find folders, a uid and an NVIDIA stack that no cluster can have."""
        members = {name: group.get_hosts() for name, group in self.inventory.groups.items()}
        host = next(iter(members.get("compute", ())), None) or self.inventory.get_host("localhost")
        findings: list[Finding] = []
        for name, place in {**self.written, **{name: place_of(name) for name in self.extra}}.items():
            try:
                if name in cluster_values.FOLDERS:
                    findings += cluster_values.folder(name, self.value(host, name), self.known[name].default, place)
                elif name == "trainyard_uid":
                    manages = bool(self.value(host, "trainyard_manage_system"))
                    findings += cluster_values.uid(int(self.value(host, name)), manages, place)
                elif name == "nvidia_stack" and not members.get("nvidia"):
                    if any(leaves(self.manager.get_vars(play=self.play, host=host)[name])):
                        # It may differ by host: the role compares it with each of them.
                        continue
                    own = "nvidia_stack_own" in {**self.written, **self.extra}
                    stacks = {**catalog(), **(self.value(host, "nvidia_stack_own") if own else {})}
                    findings += cluster_values.stack(self.value(host, name), stacks, place)
            except (AnsibleError, KeyError, TypeError, ValueError):
                # Facts decide it, or its kind is a finding already.
                continue
        return findings

    def places(self, variables: Mapping[str, Any]) -> Callable[[str], Place]:
        """Return the function that says where a variable of the inventory was written."""
        return lambda name: place_of(next((key for key in variables if key == name), name), INVENTORY)

    def set_defaults(self) -> None:
        """Give the cluster's documented defaults to the group all, where everything that the inventory says wins."""
        everybody = self.inventory.groups["all"]
        self.by_default = self.project - set(everybody.vars)
        for name in self.by_default:
            default = self.known[name].default
            everybody.set_variable(name, trust_as_template(default) if isinstance(default, str) else default)

    def value(self, host: Any, name: str) -> Any:
        """Return what a variable is for a host."""
        variables = self.manager.get_vars(play=self.play, host=host)
        return Templar(loader=self.loader, variables=variables).template(variables[name])

    def seen_from_controller(self) -> list[Finding]:
        """Let localhost, where jobs are planned, see what the inventory says of the nodes alone, or say why not."""
        compute = self.inventory.groups.get("compute")
        nodes = {host.name: host for host in compute.get_hosts()} if compute else {}
        # By variable and text: the hosts that have it. Group all is for everybody anyway.
        said: dict[str, dict[str, list[str]]] = {}
        wanted = self.on_controller | self.project
        for each, filed in self.entities():
            names = wanted.intersection(set(each.vars) | set(filed)) if each.name not in ("all", "localhost") else ()
            hosts = [each.name] if each.name in self.inventory.hosts else [host.name for host in each.get_hosts()]
            for name in names:
                text = repr(filed.get(name, each.vars.get(name)))
                said.setdefault(name, {}).setdefault(text, []).extend(host for host in hosts if host in nodes)
        findings = []
        controller = self.inventory.get_host("localhost")
        by_default = self.by_default | self.on_controller.difference(self.manager.get_vars(host=controller))
        for name, by_text in said.items():
            try:
                here = self.value(controller, name) if name not in by_default - self.by_default else "nothing"
                there = [(self.value(nodes[hosts[0]], name), hosts) for hosts in by_text.values() if hosts]
            except AnsibleError:
                continue
            if all(str(value) == str(here) for value, _ in there):
                continue
            one = all(value == there[0][0] for value, _ in there)
            if one and {host for _, hosts in there for host in hosts} == set(nodes) and name in by_default:
                controller.set_variable(name, there[0][0])
            elif name in OF_THE_CLUSTER or name in self.on_controller:
                findings.append(inputs.differs(name, here, there))
        return findings

    def names_of_nodes(self) -> list[Finding]:
        """Find names that cannot stand in /etc/hosts, where these playbooks write those of the nodes."""
        compute = self.inventory.groups.get("compute")
        if not compute or not self.builds:
            return []
        hosts = {host.name: host for host in compute.get_hosts()}
        faults = {name: inventory_findings([name]) for name in hosts}
        return [
            finding
            for name, found in faults.items()
            for finding in found
            if self.value(hosts[name], "trainyard_manage_system")
        ]

    def of_other_values(self) -> list[Finding]:
        """Find what a role's argument_specs do not allow, beside the kind of a value: choices, keys of dictionaries."""
        findings = []
        anybody = next(iter(self.inventory.get_hosts()), None)
        given = [(self.extra, COMMAND_LINE, anybody)]
        for each, filed in self.entities():
            hosts = [each] if each.name in self.inventory.hosts else each.get_hosts()
            given.append(({**each.vars, **filed}, INVENTORY, next(iter(hosts), None)))
        for variables, otherwise, host in given:
            for name, value in variables.items():
                option = self.of_roles.get(name)
                if option is None:
                    continue
                if any(leaves(value)):
                    # Where it depends on facts, the role that uses it sees what it makes of it.
                    try:
                        value = self.value(host, name)
                    except (AnsibleError, KeyError):
                        continue
                for message in ArgumentSpecValidator({name: option}).validate({name: value}).error_messages:
                    place = place_of(next(key for key in variables if key == name), otherwise)
                    findings.append(inputs.not_allowed(name, str(message), place))
        return list(dict.fromkeys(findings))

    def undefined(self) -> list[Finding]:
        """Find what templates of the inventory use and nobody has set; roles' own variables get their values later."""
        families = tuple({each.family for each in self.known.values()} - {"job_", "trainyard_"})
        unset: dict[str, dict[str, Place]] = {}
        for each, filed in self.entities():
            host = each if each.name in self.inventory.hosts else next(iter(each.get_hosts()), None)
            given = {name: value for name, value in {**each.vars, **filed}.items() if any(leaves(value))}
            wanted = [name for name in given if host and (name in self.known or name in self.connection)]
            variables = self.manager.get_vars(play=self.play, host=host) if wanted else {}
            templar = Templar(loader=self.loader, variables=variables)
            for name in wanted:
                for text in leaves(given[name]):
                    lacking = given_values.missing(text, templar)
                    if lacking and lacking not in self.known and not lacking.startswith(families):
                        unset.setdefault(lacking, {})[name] = place_of(text, INVENTORY)
        return [job_file.undefined(name, users, self.known, "inventory") for name, users in unset.items()]

    def runs(self) -> list[Finding]:
        """Find that a playbook which keeps its run in trainyard_runs could not write there."""
        if not self.keeps_runs:
            return []
        try:
            folder = Path(str(self.value(self.inventory.get_host("localhost"), "trainyard_runs"))).expanduser()
        except AnsibleError:
            return []
        return run_folder.findings(folder)

    def launch(self) -> list[Finding]:
        """Return what keeps launch.yml from reading its job: there is none, or it uses what nobody has set."""
        job = {name: known.default for name, known in self.known.items() if name.startswith("job_")}
        host = self.inventory.get_host("localhost")
        variables = {**job, **self.manager.get_vars(play=self.play, host=host)}
        if variables["job_name"] is None and variables["job_command"] is None:
            return [job_file.no_job(self.job_files)]
        findings = [job_file.without(name) for name in ("job_name", "job_command") if variables[name] is None]
        if variables["job_id"] is not None:
            given = next((key for key in self.extra if key == "job_id"), None)
            place = place_of(given) if given else INVENTORY
            findings.append(job_file.with_id(variables["job_id"], place))
        # Late, as nothing but a launch needs all that schedulers know.
        from ansible.module_utils.trainyard.job import schedulers

        # Before anybody looks for hosts: who runs a job decides which hosts there must be.
        who = {name: variables[name] for name in ("job_scheduler", "job_launcher")}
        findings += schedulers.who_runs({name: value for name, value in who.items() if not inputs.is_template(value)})
        templar = Templar(loader=self.loader, variables=variables)
        unset: dict[str, dict[str, Place]] = {}
        for name in job:
            for text in leaves(variables[name]):
                try:
                    value = templar.template(text)
                except AnsibleUndefinedVariable as error:
                    lacking = given_values.undefined_name(error)
                    if lacking:
                        unset.setdefault(lacking, {})[name] = place_of(text, INVENTORY)
                    continue
                except AnsibleTemplateSyntaxError as error:
                    findings.append(job_file.no_template(name, place_of(text, INVENTORY), text, str(error)))
                    continue
                except AnsibleError:
                    # A lookup that fails, say: Ansible tells it when the value is needed.
                    continue
                # What a template makes of another variable's text is as much a text as that one.
                if text is variables[name] and isinstance(value, str):
                    place = place_of(text, INVENTORY)
                    changes, wrong = inputs.converted(
                        {name: value}, {name: place}.__getitem__, self.known, self.loader.load
                    )
                    self.extra.update(changes)
                    findings += wrong
        return findings + [job_file.undefined(name, users, variables) for name, users in unset.items()]
