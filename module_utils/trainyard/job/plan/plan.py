# SPDX-License-Identifier: Apache-2.0
"""The plan of a job: for every node the files, the processes, their environment and their logs.

It is a pure function of the job file and of what the nodes are, written to runs/<job_id>/plan.json before anything is
started. docs/plan.md describes each field. Secrets are not in it: it lists the names of secret variables only.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from ...base.findings import Finding, Warned, counted, faults, render
from ...nvidia import local_collective
from ..file import image_settings, secret_values
from ..file.job import SHARED_KEYS, SILENT_AFTER_S, Job, options
from ..file.job_command import leaves_source, module_of, scripts
from ..launchers import LAUNCHERS
from ..launchers.mindspore import build_findings
from ..placement import rank_order
from ..placement.job_rank_table import device_set_findings
from ..placement.placement import Member, Node, Placement, candidates, common_environment, hosts_file, place
from ..placement.process import File, Process, host_port
from ..record import folder_layout
from ..run import container_command
from ..run.decide import remaining_nodes
from . import images, script_imports, sharing_findings, spares, witness
from .fewer_nodes import as_first
from .nested_launchers import one_copy_text
from .preflight import crowded, environment_findings, own_scripts
from .spares import Spare

# Upper bound for the lines of a file that are shown; a hostfile of a large cluster has thousands.
MAX_FILE_LINES = 20
# The headline above the warnings of a plan.
WARNED = "Warnings: {count}. The job starts all the same."


@dataclass(frozen=True)
class JobPlan:
    """A job on its nodes, ready to be started."""

    job: Job
    placement: Placement
    created: str
    processes: Mapping[str, Sequence[Process]]
    files: Mapping[str, Sequence[File]]
    shared_files: Sequence[File] = ()
    spares: Sequence[Spare] = ()
    # Findings that do not keep the job from starting.
    warnings: Sequence[Finding] = ()
    # The program all_reduce_perf on the nodes, or "".
    all_reduce: str = ""
    # The folder of the cluster's Python environments, for tools that any of them may have.
    venvs: str = ""
    # Folders of the job and which hosts share them; empty until the nodes were asked.
    folders: Sequence[Mapping[str, str]] = ()
    # Files beside plan.json, for an external scheduler only.
    submitted: Mapping[str, str] = field(default_factory=dict)

    def node(self, node: Node) -> dict[str, Any]:
        """Return one node as in plan.json."""
        return {
            "host": node.host,
            "node_rank": node.node_rank,
            "address": node.address,
            "interface": node.interface,
            "devices": list(node.devices),
            **({"cores": node.cores.split(";")} if node.cores else {}),
            "local_collective": self._collective(node),
            "ranks": list(node.ranks),
            "files": [file.as_dict(self.placement.node_dir, self._may_shrink) for file in self.files[node.host]],
            "processes": [process.as_dict(self._may_shrink) for process in self.processes[node.host]],
            **self._container(node),
            **self._as_first(node),
        }

    def _as_first(self, node: Node) -> dict[str, Any]:
        """Return what the node has as the first one, if it may lead the job and is not the first one anyway."""
        if not self._may_shrink or node is self.placement.head or node.host not in self._candidates:
            return {}
        found = as_first(LAUNCHERS[self.job.launcher], self.job, self.placement, node)
        if found is None:
            return {}
        processes, files = found
        return {
            "as_first": {
                "processes": [process.as_dict(True) for process in processes],
                "files": [file.as_dict(self.placement.node_dir, True) for file in files],
            }
        }

    def _container(self, node: Node) -> dict[str, Any]:
        return {"container": images.record(self.job, self.placement, node)} if self.job.image else {}

    # Cached, as every node reads it where the job may shrink: it is made of all hosts.
    @cached_property
    def _candidates(self) -> list[str]:
        hosts, restarts = [node.host for node in self.placement.everyone], self.job.restarts
        return candidates(restarts.max_restarts, hosts, restarts.witness)

    @property
    def _may_shrink(self) -> bool:
        return self.job.restarts.min_nodes > 0

    def _collective(self, node: Node) -> dict[str, Any]:
        if not self.job.health_gate or node.vendor != "nvidia":
            return {}
        environment = common_environment(self.job, self.placement, node)
        return local_collective.command(self.all_reduce, node.devices, environment)

    def as_dict(self) -> dict[str, Any]:
        """Return the plan as in plan.json."""
        job, placement = self.job, self.placement
        return {
            "job_id": placement.job_id,
            "job_name": job.name,
            "launcher": job.launcher,
            "created": self.created,
            "world_size": placement.world_size,
            **({"one_copy": job.one_copy} if job.one_copy else {}),
            "head": {"host": placement.head.host, "address": placement.head.address, "port": placement.port},
            "candidates": self._candidates,
            **witness.of_plan(job, placement),
            "monitor_port": placement.monitor_port,
            "silent_after_s": SILENT_AFTER_S,
            **options(job),
            **({"min_nodes": job.restarts.min_nodes} if self._may_shrink else {}),
            "job_dir": placement.node_dir,
            "rank_log": LAUNCHERS[job.launcher].rank_log,
            "venv": placement.venv,
            **({"image": job.image.reference} if job.image else {}),
            "venvs": self.venvs,
            "events": [dict(each) for each in job.events.receivers],
            "warnings": [warning.as_dict() for warning in self.warnings],
            **({"folders": [dict(each) for each in self.folders]} if self.folders else {}),
            "files": [file.as_dict(placement.node_dir) for file in self.shared_files],
            "nodes": [self.node(node) for node in placement.nodes],
            "spares": [
                {
                    **spare.as_dict(placement.node_dir, self._may_shrink),
                    "local_collective": self._collective(spare.node),
                    **self._container(spare.node),
                    **self._as_first(spare.node),
                }
                for spare in self.spares
            ],
        }

    def describe(self) -> str:
        """Write the plan for reading: what --check shows."""
        return describe(self.as_dict())

    def node_plans(
        self, source_files: Sequence[str], imported: Sequence[str] = (), interpreter: str = ""
    ) -> dict[str, dict[str, Any]]:
        """Return the node plan of each host, with what preflight needs.

        `imported` are the modules that the job's script in job_source imports, and `interpreter` is the program that
        starts the job's own. Only the node plans of the few hosts
        that may lead the job name all hosts, so that the sent data grows with the number of nodes, not its square.
        """
        job, placement = self.job, self.placement
        shared = {
            "packages": list(job.packages),
            "program": job.command[0],
            "scripts": own_scripts(job),
            "starter": LAUNCHERS[job.launcher].starter(job),
            "interpreter": interpreter,
            "module": module_of(job.command, source_files),
            "source_files": [name for name in source_files if name in job.command[0]],
        }
        peers = [{"host": node.host, "address": node.address} for node in placement.everyone]
        planned = node_plans(self.as_dict())
        # The hosts from which ranks are started by ssh: the head, and all that may be first instead.
        by_ssh = LAUNCHERS[job.launcher].starts_by_ssh(job, placement)
        starting = [node.host for node in (placement.head, *placement.spares) if by_ssh]
        starting += [host for host, each in planned.items() if by_ssh and "as_first" in each]
        nodes = {
            node.host: {
                **planned[node.host],
                **shared,
                "ssh_peers": [peer for peer in peers if peer["host"] != node.host] if node.host in starting else [],
                "fingerprint": node.fingerprint,
                **self._entry(node, imported),
            }
            for node in (*placement.nodes, *(spare.node for spare in self.spares))
        }
        return {**planned, **nodes}

    def _entry(self, node: Node, imported: Sequence[str]) -> dict[str, Any]:
        """Return the folders of programs, and as `entry` the script that Python runs and its imports.

        `environment` has the variables that decide where modules are found.
        """
        common = common_environment(self.job, self.placement, node)
        environment = script_imports.settings(common)
        known = script_imports.is_known(environment, self.job.secret_env)
        name = script_imports.script(self.job.command) if known else ""
        entry = {"script": name, "imports": list(imported), "environment": environment}
        return {"program_path": common["PATH"], "entry": entry}


def node_plans(plan: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the node plan of each host, for its monitor and processes, from a plan as in plan.json."""
    head, nodes, spares_there = plan["head"], plan["nodes"], plan.get("spares", ())
    shared = {
        **{name: plan[name] for name in SHARED_KEYS},
        **remaining_nodes.of_plan(plan),
        "head_host": head["host"],
        "head_address": head["address"],
        "port": head["port"],
    }
    addresses = {node["host"]: node["address"] for node in (*nodes, *spares_there)}
    leading = plan.get("candidates") or ()
    if leading:
        shared["candidates"] = [[host, addresses[host]] for host in leading]
    # Only the hosts that may lead the job know the others.
    of_head = {
        **({"witness": witness.host(plan)} if "witness" in plan else {}),
        "hosts": [node["host"] for node in nodes],
        "addresses": addresses,
        "spares": [spare["host"] for spare in spares_there],
        "events": plan["events"],
        # Ranks that are processes of the head's own mpirun, so that it knows where they are.
        "ranks_of": {node["host"]: node["ranks"] for node in nodes if node["ranks"] and not node["processes"]},
    }
    others: dict[str, Any] = {"hosts": [], "addresses": {}, "events": [], "ranks_of": {}}
    of_spare: dict[str, Any] = {**others, "ranks_of": of_head["ranks_of"], "ranks": [], "files": [], "processes": []}
    found = {
        **{node["host"]: {**shared, **node, **others} for node in nodes},
        **{spare["host"]: {**shared, **spare, **of_spare} for spare in spares_there},
        **witness.node_plan(plan, shared),
    }
    for host in leading or [head["host"]]:
        found[host].update(of_head)
    return found


def source_findings(
    job: Job, source_files: Sequence[str] | None, left_out: Mapping[str, Sequence[str]]
) -> list[Finding]:
    """Find a script that the command names but job_source does not hold; `source_files` is None without that folder."""
    if source_files is None:
        found = f"no folder {job.source!r} on the controller"
        action = "correct job_source (a relative path counts from the job file's folder, then from the project's)"
        return [Finding("job_source", found, "the folder with the training scripts", action)]
    named = [word for word in scripts(job.command) if not word.startswith(("/", "-"))]
    if named and not leaves_source(job.command) and named[0].removeprefix("./") not in source_files:
        script = named[0].removeprefix("./")
        why = [
            f", as {name} is left out ({reason})"
            for reason, names in left_out.items()
            for name in names
            if script == name or script.startswith(f"{name.rstrip('/')}/")
        ]
        found = f"no {named[0]} in {job.source or 'an empty job_source'}{''.join(why[:1])}"
        expected = f"one of {', '.join(sorted(source_files)[:8]) or 'the files of job_source'}"
        return [Finding("job_command", found, expected, "correct job_command or job_source")]
    return []


def build(
    job: Job,
    job_id: str,
    created: str,
    state_dir: str,
    members: Sequence[Member],
    all_reduce: str = "",
    venvs: str = "",
) -> tuple[JobPlan | None, list[Finding]]:
    """Return the plan of a job on its members, or None, and all findings; the plan has the warnings."""
    launcher = LAUNCHERS[job.launcher]
    few = spares.too_few(job, len(members))
    order = launcher.rank_order(job)
    members, unordered = rank_order.ordered(job, members, own=order is not None)
    placement, findings = place(job, job_id, state_dir, members, order)
    findings += few + unordered
    if job.image:
        findings += image_settings.copy_findings(job.image, [member.host for member in members])
        findings += images.findings(job.image, {member.host: member.facts for member in members if member.facts})
    if placement is None or few:
        return None, findings
    findings += device_set_findings(placement, overruled=job.any_device_set)
    findings += build_findings(placement) + launcher.check(job, placement)
    placement = placement.with_spares(job.restarts.spares)
    ready, wrong = spares.plan(launcher, job, placement)
    findings += [*wrong, *witness.alone(job, placement)]
    if wrong:
        return None, findings
    plan = JobPlan(
        job=job,
        placement=placement,
        created=created,
        processes={node.host: launcher.processes(job, placement, node) for node in placement.nodes},
        files={node.host: launcher.files(job, placement, node) for node in placement.nodes},
        shared_files=[*launcher.shared_files(job, placement), hosts_file(placement)],
        spares=ready,
        warnings=[*(each for each in findings if isinstance(each, Warned)), *secret_values.hints(job.env)],
        all_reduce=all_reduce,
        venvs=venvs,
    )
    return plan, faults(findings) + crowded(placement) + environment_findings(job, placement)


def describe(plan: Mapping[str, Any]) -> str:
    """Write a plan for reading; variables that all processes share stand once."""
    nodes = plan["nodes"]
    environments = [process["env"] for node in nodes for process in node["processes"]]
    first, *others = environments
    shared = {key: value for key, value in first.items() if all(env.get(key) == value for env in others)}
    lines = [
        f"Plan of {plan['job_id']}: {counted(plan['world_size'], 'rank')} on {counted(len(nodes), 'node')}, "
        f"launcher {plan['launcher']}",
        *([f"  command     {one_copy_text(plan['one_copy'])}"] if plan.get("one_copy") else []),
        f"  rendezvous  {host_port(plan['head']['address'], plan['head']['port'])} on {plan['head']['host']}",
        f"  folder      {folder_layout.common_dir(plan['job_dir'])} on every node",
        *(f"  shared      {line}" for line in sharing_findings.lines(plan.get("folders", ()))),
        "  environment of every process",
        *(f"    {key}={value}" for key, value in sorted(shared.items())),
        *(f"    {key}=(secret)" for key in plan["secret_env"]),
        *(f"  events      {each['to']}, sent by {plan['head']['host']}" for each in plan["events"]),
        *([f"  metrics     {plan['metrics_folder']} on every node"] if plan["metrics_folder"] else []),
        *(line for file in plan["files"] for line in _shown(file, "  ", " on every node")),
    ]
    for node in nodes:
        devices = ",".join(map(str, node["devices"])) or "none"
        own = [f"  {node['host']}  address {node['address']} on {node['interface']}, devices {devices}"]
        for process in node["processes"]:
            ranks = process["ranks"]
            span = f" (ranks {ranks[0]}-{ranks[-1]})" if len(ranks) > 1 else f" (rank {ranks[0]})" if ranks else ""
            own.append(f"    {process['name']}{span}  {shlex.join(_whole(plan, node, process))}")
            own += [f"      {key}={value}" for key, value in sorted(process["env"].items()) if key not in shared]
            own.append(f"      log {process['log']}")
        own += [line for file in node["files"] for line in _shown(file, "    ")]
        lines += [line.replace(folder_layout.HOST, node["host"]) for line in own]
    for spare in plan.get("spares", ()):
        lines.append(f"  {spare['host']}  address {spare['address']} on {spare['interface']}, stands by as a spare")
    if "witness" in plan:
        lines.append(f"  {witness.host(plan)}  only votes when the head is lost (job_witness)")
    warnings = warnings_text(plan)
    return "\n".join([*lines, *_exact_names(environments), *(["", warnings] if warnings else [])])


def _whole(plan: Mapping[str, Any], node: Mapping[str, Any], process: Mapping[str, Any]) -> list[str]:
    """Return the whole command line of a process: with an image, that of the container program."""
    if "container" not in node or process.get("on_host"):
        return list(process["argv"])
    names = {**process["env"], **dict.fromkeys(plan["secret_env"], "")}
    folder = f"{folder_layout.common_dir(plan['job_dir'])}/{folder_layout.SOURCE}"
    return container_command.command(node["container"], plan["job_id"], process["name"], process["argv"], names, folder)


def warnings_text(plan: Mapping[str, Any]) -> str:
    """Write the warnings of a plan for reading; "" where it has none."""
    warnings = [Finding.from_dict(warning) for warning in plan.get("warnings", ())]
    return render(warnings, WARNED) if warnings else ""


def _exact_names(environments: Sequence[Mapping[str, str]]) -> list[str]:
    """Explain the second `=` of NCCL's lists of interfaces and adapters, which looks like a typo."""
    names = ", ".join(sorted({key for env in environments for key, value in env.items() if value.startswith("=")}))
    return [f"  {names}: the second = is NCCL's own: exactly this name; eth1 alone means eth10, too"] if names else []


def _shown(file: Mapping[str, str], indent: str, where: str = "") -> list[str]:
    content = file["content"].splitlines()
    more = len(content) - MAX_FILE_LINES
    return [
        f"{indent}file {file['path']} ({file['mode']}){where}",
        *(f"{indent}  | {line}" for line in content[:MAX_FILE_LINES]),
        *([f"{indent}  | ... ({counted(more, 'more line')})"] if more > 0 else []),
    ]
