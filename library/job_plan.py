#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Plan a job over all its nodes; runs once, on the controller."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: job_plan
short_description: Plan a distributed training job over all its nodes
description:
  - Checks the job file, places the ranks on the nodes, and writes the whole plan to C(plan.json) in the run's folder,
    together with the source archive that is sent to the nodes.
  - Runs once, on the controller. It touches no node.
  - Collects every fault of the job file, the source and the nodes in RV(findings) and does not fail because of them,
    so that the faults that preflight finds can be shown with them.
version_added: "0.1.0"
options:
  job:
    description: The variables of the job file, C(job_*), as docs/job-file.md describes them.
    type: dict
    required: true
  given:
    description: Names of all variables that begin with C(job_), to find misspelt ones.
    type: list
    elements: str
    default: []
  nodes:
    description: The hosts of the job in the order of their ranks.
    type: list
    elements: dict
    required: true
    suboptions:
      host:
        description: Inventory name.
        type: str
        required: true
      address:
        description: Address or name by which Ansible reaches the host.
        type: str
        required: true
      facts:
        description: What M(node_info) returned; empty when the host could not be reached.
        type: dict
        default: {}
      answer:
        description: What came back from the host in place of facts; empty where it was not asked.
        type: dict
        default: {}
      env:
        description: The host variable C(job_node_env). What is wrong with it is a finding.
        type: raw
        default: {}
  runs_dir:
    description: Folder on the controller that holds the folders of all runs.
    type: path
    required: true
  state_dir:
    description: Folder on the nodes that holds C(jobs/).
    type: path
    required: true
  available:
    description: How many hosts the group of the job has.
    type: int
    required: true
  probed:
    description: Whether the nodes were asked for their facts just now; those without facts then gave no answer.
    type: bool
    default: false
  limit:
    description:
      - What the option C(--limit) of ansible-playbook was, where the nodes were asked for their facts just now.
      - Nodes without facts are then those that it leaves out.
    type: str
    default: ""
  user:
    description: The training user.
    type: str
    default: ""
  asked_by:
    description: The playbook that wants the job; one that runs it for itself gives its own name.
    type: str
    default: launch.yml
  kept_facts:
    description:
      - File on the controller that keeps the nodes' facts between launches.
      - Facts that are given are written there; for a node without facts those of the file are taken.
    type: path
  replaces:
    description: A run that was planned and not started, whose folder this plan makes superfluous.
    type: str
    default: ""
attributes:
  check_mode:
    description: Can run in check mode; the plan is written then too, in place of that of the check before.
    support: full
author:
  - trainyard
"""

EXAMPLES = r"""
- name: Plan two ranks on each of two hosts
  job_plan:
    job: {job_name: digits, job_launcher: torchrun, job_processes_per_node: 2, job_command: [python, train.py]}
    nodes:
      - {host: n1, address: 10.77.0.11, facts: "{{ hostvars.n1.node.node }}"}
      - {host: n2, address: 10.77.0.12, facts: "{{ hostvars.n2.node.node }}"}
    available: 2
    probed: true
    runs_dir: runs
    state_dir: /var/lib/trainyard
  delegate_to: localhost
  run_once: true
"""

RETURN = r"""
findings:
  description: All faults, each with host, check, found, expected and action.
  returned: always
  type: list
  elements: dict
job_id:
  description: Name of this run and of its folder.
  returned: always
  type: str
run_dir:
  description: Folder of this run on the controller.
  returned: when there is a plan
  type: str
plan:
  description: The plan as it stands in C(plan.json), without the nodes.
  returned: when there is a plan
  type: dict
slices:
  description: For each host what M(job_preflight) and M(job_process) need.
  returned: when there is a plan
  type: dict
text:
  description: The plan for reading.
  returned: when there is a plan and check mode is on
  type: str
probed:
  description: Whether the nodes were asked just now; otherwise facts that were kept may not hold any more.
  returned: always
  type: bool
source_archive:
  description: The source folder as C(tar.gz), base64.
  returned: when there is a plan
  type: str
"""

import base64
import dataclasses
import json
import os
import random
import shutil
import time
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.trainyard import given_table, schedulers
from ansible.module_utils.trainyard import job as jobs
from ansible.module_utils.trainyard.findings import Finding
from ansible.module_utils.trainyard.placement import Member
from ansible.module_utils.trainyard.plan import build, describe
from ansible.module_utils.trainyard.rank_environment import node_environment
from ansible.module_utils.trainyard.runs import USER
from ansible.module_utils.trainyard_node.run_folder import MAX_SOURCE, forget_checked, new_run, pack, source_files


def keep_facts(params: dict[str, Any]) -> None:
    """Fill in facts that were kept for nodes without any, and keep the given ones for the next launch.

    Facts are those of a job's environment and packages: for another environment they are of no use.
    """
    path = Path(params["kept_facts"])
    key = {name: params["job"].get(name) for name in ("job_venv", "job_packages")}
    try:
        kept = json.loads(path.read_text())
    except (OSError, ValueError):
        kept = {}
    nodes = kept["nodes"] if kept.get("key") == key else {}
    new = {node["host"]: node for node in params["nodes"] if node["facts"]}
    for node in params["nodes"]:
        known = nodes.get(node["host"])
        if known and known["address"] == node["address"] and not node["facts"] and not node["answer"]:
            ports = known["facts"].get("free_ports") or []
            # The ports were free once; two jobs at the same time should not begin with the same one.
            node["facts"] = {**known["facts"], "free_ports": random.SystemRandom().sample(ports, len(ports))}
    if new:
        nodes.update({host: {"address": node["address"], "facts": node["facts"]} for host, node in new.items()})
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_suffix(f".{os.getpid()}")
        temporary.write_text(json.dumps({"key": key, "nodes": nodes}))
        temporary.replace(path)


def with_given_table(job: jobs.Job, findings: list[Finding]) -> jobs.Job:
    """Read the rank table that the job names."""
    path = Path(job.rank_table).expanduser()
    table = None
    try:
        table, reason = given_table.read(str(path), path.read_text(encoding="utf-8"))
    except OSError as error:
        reason = f"{error.strerror}"
    except UnicodeDecodeError:
        reason = "no text in UTF-8"
    if table is None:
        findings.append(
            Finding(
                "",
                "job_rank_table",
                f"{path}: {reason}",
                "a rank table on the controller",
                "correct job_rank_table (a relative path counts from the project's folder), or leave it out",
            )
        )
    return dataclasses.replace(job, given_table=table)


def members(params: dict[str, Any], findings: list[Finding]) -> list[Member]:
    """Read the nodes' facts and environment."""
    result = []
    for node in params["nodes"]:
        env, wrong = node_environment(node["env"], node["host"])
        findings += wrong
        left_out = "" if node["facts"] else params["limit"]
        result.append(Member(node["host"], node["address"], node["facts"] or None, node["answer"], env, left_out))
    return result


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "job": {"type": "dict", "required": True},
            "given": {"type": "list", "elements": "str", "default": []},
            "nodes": {
                "type": "list",
                "elements": "dict",
                "required": True,
                "options": {
                    "host": {"type": "str", "required": True},
                    "address": {"type": "str", "required": True},
                    "facts": {"type": "dict", "default": {}},
                    "answer": {"type": "dict", "default": {}},
                    "env": {"type": "raw", "default": {}},
                },
            },
            "runs_dir": {"type": "path", "required": True},
            "state_dir": {"type": "path", "required": True},
            "available": {"type": "int", "required": True},
            "probed": {"type": "bool", "default": False},
            "limit": {"type": "str", "default": ""},
            "user": {"type": "str", "default": ""},
            "asked_by": {"type": "str", "default": USER},
            "kept_facts": {"type": "path"},
            "replaces": {"type": "str", "default": ""},
        },
        supports_check_mode=True,
    )
    params = module.params
    superfluous = Path(params["runs_dir"], params["replaces"])
    if superfluous.parent == Path(params["runs_dir"]) and (superfluous / "plan.json").is_file():
        shutil.rmtree(superfluous)
    # Where there are no nodes, asking again would find nothing else.
    probed = params["probed"] or not params["nodes"]
    if params["kept_facts"]:
        keep_facts(params)
    findings = jobs.unknown_keys(params["given"])
    job, wrong = schedulers.parse(params["job"])
    findings += wrong
    nodes = params["job"].get("job_nodes") or 0
    try:
        count = jobs.parse_count(nodes, *jobs.NUMBERS["job_nodes"]) or 0
    except ValueError:
        count = 0
        findings.append(
            Finding("", "job_nodes", repr(nodes), "a whole number, or 0 for all of the group", "correct job_nodes")
        )
    if not params["available"]:
        findings.append(
            Finding(
                "",
                "job_hosts",
                f"no host in {params['job'].get('job_hosts')!r}",
                "a group of the inventory with at least one host",
                "correct job_hosts, or the inventory (-i)",
            )
        )
    elif count > params["available"]:
        findings.append(
            Finding(
                "",
                "job_nodes",
                f"{count} nodes asked for, {params['available']} in group {params['job'].get('job_hosts')}",
                "at most as many nodes as the group has",
                "lower job_nodes or choose another group with job_hosts",
            )
        )
    everybody = members(params, findings)
    if job is None or not everybody:
        module.exit_json(changed=False, findings=[finding.as_dict() for finding in findings], probed=probed)

    if job.rank_table:
        job = with_given_table(job, findings)
    folder = Path(job.source) if job.source else None
    files = source_files(folder) if folder else []
    plan, planned = build(job, "unnamed", time.strftime("%Y-%m-%dT%H:%M:%S%z"), params["state_dir"], everybody, files)
    findings += planned
    archive = pack(folder, files) if folder and files else pack(Path(), [])
    if len(archive) > MAX_SOURCE:
        findings.append(
            Finding(
                "",
                "job_source",
                f"{len(archive) >> 20} MiB, packed",
                f"at most {MAX_SOURCE >> 20} MiB of scripts",
                "keep data and checkpoints elsewhere (role dataset, job_data)",
            )
        )
    if plan is None or findings:
        # Nothing is written for a job that cannot run, yet preflight goes on to find the rest.
        slices = plan.slices(files or []) if plan else {}
        module.exit_json(
            changed=False, findings=[finding.as_dict() for finding in findings], slices=slices, probed=probed
        )

    job_id, run_dir = new_run(Path(params["runs_dir"]), job.name)
    plan, _ = build(job, job_id, plan.created, params["state_dir"], everybody, files)
    if plan is None:
        raise AssertionError("a plan does not depend on the job id")
    written = {**plan.as_dict(), "asked_by": params["asked_by"], "check": module.check_mode}
    (run_dir / "plan.json").write_text(json.dumps(written, indent=2) + "\n")
    (run_dir / "source.tar.gz").write_bytes(archive)
    if module.check_mode:
        forget_checked(run_dir.parent, job.name, job_id)
    head = {key: value for key, value in written.items() if key != "nodes"}
    module.exit_json(
        changed=True,
        findings=[],
        probed=probed,
        job_id=job_id,
        run_dir=str(run_dir),
        plan=head,
        slices=plan.slices(files or []),
        source_archive=base64.b64encode(archive).decode(),
        text=describe(written) if module.check_mode else "",
    )


if __name__ == "__main__":
    main()
