# SPDX-License-Identifier: Apache-2.0
"""Scheduler `kubernetes`: a job becomes a resource of a cluster, created from the controller."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from ....base.findings import Finding
from ....slurm.allocation import UNFIT
from ...file.job import Job
from ..records import Source, SubmittedPlan, Where
from . import manifests, names, settings, state
from .pods import ARCHIVE, PACKED_DIR, SECRETS_DIR, STATE_DIR, TLS_HOME, VALUES_KEY, Manifest, Request
from .resources import RESOURCES

LAUNCHERS: tuple[str, ...] = ("torchrun", "direct", "mindspore", "mpirun", "msrun", "oneflow")

SCRIPTS_ELSEWHERE = True
MANIFEST = "manifest.yml"
# From this version on, a pod of a Job may end without the others (backoffLimitPerIndex).
_PER_INDEX = (1, 29)


def plan(
    job: Job, facts: Mapping[str, Any], source: Source, where: Where
) -> tuple[SubmittedPlan | None, list[Finding]]:
    """Return the job as manifests, or findings. `facts` are those of the cluster's probe."""
    # The image has its own environment; job_venv is a folder of hosts.
    job = replace(job, venv="")
    chosen, findings = settings.parse(job)
    if chosen is None:
        return None, findings
    findings += [*_combination_findings(job, chosen), *(_unsupported(job) if chosen.resource != "Job" else ())]
    if chosen.code == "configmap":
        action = (
            "leave job_source out and put the scripts into the image, or on a volume: job_kubernetes.code: volume with "
            "code_claim and code_path"
        )
        findings += source.too_large(manifests.MAX_CONFIGMAP, ", as it is in a ConfigMap", action)
    if facts.get("unsuitable"):
        return None, findings
    # Without a namespace in the manifest, kubectl would use `default` instead of the context's.
    chosen = replace(chosen, namespace=chosen.namespace or str(facts.get("namespace") or ""))
    name, renamed = names.legal(where.job_id, manifests.names_appended(RESOURCES[chosen.resource]))
    request = Request(
        job=job,
        settings=chosen,
        job_id=where.job_id,
        name=name,
        pods=max(job.nodes, 1) + job.restarts.spares,
        ranks_per_pod=job.ranks_per_node or 1,
        archive=source.base64(),
        pods_end_alone=_version(facts) >= _PER_INDEX,
    )
    if not request.pods_end_alone and (job.restarts.spares or job.restarts.min_nodes):
        expected = f"{'.'.join(map(str, _PER_INDEX))} or newer, where one pod may end without the others"
        action = "leave job_spares and job_min_nodes out, or use another cluster"
        findings.append(Finding("cluster", f"Kubernetes {facts['version']}", expected, action))
    return SubmittedPlan(
        job=job,
        job_id=where.job_id,
        created=where.created,
        submit_host=where.submit_host,
        nodes=request.pods,
        ranks_per_node=request.ranks_per_pod,
        job_dir=f"{STATE_DIR}/jobs/{where.job_id}" if request.has_monitors else "",
        rank_log=state.rank_log(chosen.resource, job.launcher),
        submitted={MANIFEST: to_yaml(manifests.manifests(request))},
        settings=_run_settings(request, renamed),
    ), findings


def _version(facts: Mapping[str, Any]) -> tuple[int, ...]:
    """Return the cluster's version as numbers, 1.33; an unknown one is new."""
    found = re.match(r"(\d+)\.(\d+)", str(facts.get("version") or ""))
    return tuple(map(int, found.groups())) if found else _PER_INDEX


def in_pods(job: Job) -> dict[str, Any]:
    """Return what the pods of a plain Job change in the request with which hosts plan (launch.Request)."""
    chosen, _ = settings.parse(job)
    code = chosen.code if chosen else ""
    return {
        # The image is the pods' own, with its environment.
        "job": {
            **dict.fromkeys(("job_image", "job_venv", "job_source"), ""),
            # TLS needs MindSpore by its name, which nothing compares here.
            "job_packages": list(job.packages) if job.tls else [],
        },
        "archive": f"{PACKED_DIR}/{ARCHIVE}" if code == "configmap" else "/dev/null",
        "code_dir": chosen.code_path if chosen and code != "configmap" else "",
        "secrets": f"{SECRETS_DIR}/{VALUES_KEY}",
    }


def _run_settings(request: Request, renamed: str) -> dict[str, Any]:
    resource, chosen = request.resource, request.settings
    return {
        "resource": chosen.resource,
        "api_version": resource.api_version,
        "plural": resource.plural,
        "operator": resource.operator,
        "container": resource.container,
        "name": request.name,
        "renamed": renamed,
        "namespace": chosen.namespace,
        "kubeconfig": chosen.kubeconfig,
        "context": chosen.context,
        **({} if request.has_monitors else {"tls_home": TLS_HOME}),
        "pods": request.pods,
        "ranks_per_pod": request.ranks_per_pod,
        "stop_grace_s": request.grace_s,
    }


def complete(plan: Mapping[str, Any], state: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the state as the cluster reports it; where pods could not plan, the first one has printed why."""
    processes = [process for node in state.get("nodes") or () for process in node["processes"]]
    if state["state"] != "failed" or not any(process.get("exit_code") == UNFIT for process in processes):
        return state
    host = plan["engine"]["settings"]["name"]
    return {**state, "failure": {"kind": "engine", "host": "", "reason": f"the job cannot run in the pods of {host}"}}


def to_yaml(made: list[Manifest]) -> str:
    """Return manifests as one file for `kubectl apply -f`."""
    # Imported here, as only the controller has yaml, and nodes import modules beside this one.
    import yaml

    # The program of a job is one long text, for which libyaml needs a fortieth of the time.
    class Plain(getattr(yaml, "CSafeDumper", yaml.SafeDumper)):  # type: ignore[misc]
        """Repeats a list instead of writing an alias, which few readers expect."""

        def ignore_aliases(self, data: Any) -> bool:
            del data
            return True

    # Values of job_kubernetes may be of Ansible's own types.
    Plain.add_multi_representer(str, lambda dumper, value: dumper.represent_str(str(value)))
    Plain.add_multi_representer(int, lambda dumper, value: dumper.represent_int(int(value)))
    Plain.add_multi_representer(list, lambda dumper, value: dumper.represent_list(list(value)))
    Plain.add_multi_representer(dict, lambda dumper, value: dumper.represent_dict(dict(value)))
    return str(yaml.dump_all(made, Dumper=Plain, sort_keys=False, width=120, explicit_start=True))


def needs(chosen: settings.Settings, *, recovery: bool) -> list[dict[str, str]]:
    """Return the objects that must exist before the job: kind, name and the variable that names it."""
    needed = [
        ("PersistentVolumeClaim", chosen.code_claim, "job_kubernetes.code_claim"),
        ("Secret", chosen.tls_secret, "job_kubernetes.tls_secret"),
        ("PersistentVolumeClaim", chosen.recovery_claim if recovery else "", "job_kubernetes.recovery_claim"),
        ("ServiceAccount", chosen.service_account, "job_kubernetes.service_account"),
        *(("PersistentVolumeClaim", volume.claim, "job_kubernetes.volumes") for volume in chosen.volumes),
        *(("Secret", name, "job_kubernetes.image_pull_secrets") for name in chosen.image_pull_secrets),
    ]
    return [{"kind": kind, "name": name, "variable": variable} for kind, name, variable in needed if name]


def other_kinds(chosen: settings.Settings, *, secrets: bool) -> list[str]:
    """Return the kinds of objects that a launch creates beside the job's resource and its pods."""
    plain = chosen.resource == "Job"
    kinds = {"configmaps": plain or chosen.code == "configmap", "services": plain, "secrets": plain or secrets}
    return [plural for plural, used in kinds.items() if used]


def _combination_findings(job: Job, chosen: settings.Settings) -> list[Finding]:
    findings = [*_count_findings(job, chosen), *_device_findings(job, chosen)]
    if job.tls and chosen.tls_secret:
        found = f"true with job_kubernetes.tls_secret: {chosen.tls_secret}"
        expected = "one of them: certificates made for the job, or the Secret with your own"
        findings.append(Finding("job_tls", found, expected, "leave out job_tls, or job_kubernetes.tls_secret"))
    if job.restarts.recovery and not chosen.recovery_claim:
        expected = "a claim that scheduler and workers can all write to, for MindSpore's recovery files"
        action = "set job_kubernetes.recovery_claim, or leave job_recovery out"
        findings.append(Finding("job_recovery", "true without job_kubernetes.recovery_claim", expected, action))
    return findings


def _count_findings(job: Job, chosen: settings.Settings) -> Iterator[Finding]:
    if job.nodes < 1:
        expected = "the number of pods with ranks, as there are no hosts to count"
        yield Finding("job_nodes", "0", expected, "set job_nodes")
    if (job.ranks_per_node or 1) > 1 and chosen.resource == "MSJob":
        action = "set job_ranks_per_node: 1 and a larger job_nodes"
        yield Finding("job_ranks_per_node", f"{job.ranks_per_node} with an MSJob", "1: each pod is one rank", action)


def _device_findings(job: Job, chosen: settings.Settings) -> Iterator[Finding]:
    resource = chosen.device_resource
    name = "job_kubernetes.device_resource (nvidia.com/gpu, huawei.com/Ascend910)"
    if job.devices:
        expected = "auto or none: the cluster's device plugin chooses the devices of a pod"
        action = f"set job_devices: auto{'' if resource else f', {name}'} and job_ranks_per_node to their number"
        yield Finding("job_devices", str(list(job.devices)), expected, action)
    elif job.devices is None and not resource:
        found = "auto without job_kubernetes.device_resource"
        count = "" if job.ranks_per_node else " and job_ranks_per_node to their number in a pod"
        action = f"set {name}{count}, or job_devices: none"
        yield Finding("job_devices", found, "the resource name of devices", action)
    elif job.devices is None and job.ranks_per_node is None:
        expected = f"the number of {resource} and of ranks in each pod"
        yield Finding("job_ranks_per_node", "auto", expected, "set job_ranks_per_node")


def _unsupported(job: Job) -> list[Finding]:
    network, paths = "a pod has the networks of its cluster", "pods do not have the paths of hosts"
    variables = "NCCL_SOCKET_IFNAME and GLOO_SOCKET_IFNAME can be set in job_env"
    claim = "use the claim job_kubernetes.recovery_claim"
    rules = (
        ("job_network", job.network, network, variables),
        ("job_recovery_path", job.restarts.recovery_path, paths, claim),
        ("job_data", ", ".join(job.data), paths, "mount the data with job_kubernetes.volumes"),
    )
    return [
        Finding(key, found, f"nothing: {reason}", f"leave {key} out; {instead}")
        for key, found, reason, instead in rules
        if found
    ]
