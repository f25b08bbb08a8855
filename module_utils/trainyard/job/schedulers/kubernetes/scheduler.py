# SPDX-License-Identifier: Apache-2.0
"""Scheduler `kubernetes`: a job becomes a resource of a cluster (kube/), applied from the controller."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ....findings.findings import Finding
from ...file.job import Job
from ..records import Source, SubmittedPlan, Where
from . import manifests, names, settings, state
from .pods import TLS_HOME, Manifest, Request
from .resources import RESOURCES

LAUNCHERS: tuple[str, ...] = ("torchrun", "direct", "mindspore", "mpirun", "msrun")

SCRIPTS_ELSEWHERE = True
MANIFEST = "manifest.yml"
# What etcd takes of one object is 1.5 MiB, and of a ConfigMap the API takes 1 MiB; base64 takes a third more.
MOST_SOURCE = 700 << 10


def plan(
    job: Job, facts: Mapping[str, Any], source: Source, where: Where
) -> tuple[SubmittedPlan | None, list[Finding]]:
    """Return the job as manifests, or what a cluster cannot do for it."""
    # The image has its own environment; job_venv is a folder of hosts.
    job = replace(job, venv="")
    chosen, findings = settings.parse(job)
    findings += _refused(job)
    if chosen is None:
        return None, findings
    if job.tls and chosen.tls_secret:
        findings.append(
            Finding(
                "job_tls",
                f"true with job_kubernetes.tls_secret: {chosen.tls_secret}",
                "one of them: certificates made for the job, or the Secret with your own",
                "leave out job_tls, or tls_secret",
            )
        )
    pods = job.nodes
    ranks_per_pod = job.ranks_per_node or 1
    findings += _placement(job, chosen, pods)
    # That of the context, where the job file names none: the API would be asked for `default`.
    chosen = replace(chosen, namespace=chosen.namespace or str(facts.get("namespace") or ""))
    if chosen.code == "configmap":
        findings += source.too_large(
            MOST_SOURCE,
            ", as it travels in a ConfigMap",
            "put the scripts into the image or on a volume: job_kubernetes.code: image, or volume",
        )
    if facts.get("refused"):
        return None, findings
    resource = RESOURCES[chosen.resource]
    name, message = names.legal(where.job_id, manifests.names_appended(resource))
    request = Request(
        job=job,
        settings=chosen,
        job_id=where.job_id,
        name=name,
        pods=max(pods, 1),
        ranks_per_pod=ranks_per_pod,
        archive=source.base64(),
    )
    return SubmittedPlan(
        job=job,
        job_id=where.job_id,
        created=where.created,
        submit_host=where.submit_host,
        nodes=request.pods,
        ranks_per_node=ranks_per_pod,
        job_dir="",
        rank_log=state.rank_log(chosen.resource, ranks_per_pod),
        submitted={MANIFEST: to_yaml(manifests.manifests(request))},
        settings={
            "resource": chosen.resource,
            "api_version": resource.api_version,
            "plural": resource.plural,
            "operator": resource.operator,
            "container": resource.container,
            "name": name,
            "renamed": message,
            "namespace": chosen.namespace,
            "kubeconfig": chosen.kubeconfig,
            "context": chosen.context,
            "tls_home": TLS_HOME,
            "pods": request.pods,
            "ranks_per_pod": ranks_per_pod,
        },
    ), findings


def complete(plan: Mapping[str, Any], state: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the state as it is: the cluster tells of the job's pods, and how each of them ended."""
    del plan
    return state


def to_yaml(made: list[Manifest]) -> str:
    """Write manifests as one file for `kubectl apply -f`."""
    # Late: only the controller has it, and the nodes' modules may import what is beside this.
    import yaml

    class Plain(yaml.SafeDumper):
        """Writes a list that occurs twice twice: an alias is legal YAML that few readers expect."""

        def ignore_aliases(self, data: Any) -> bool:
            del data
            return True

    return str(yaml.dump_all(made, Dumper=Plain, sort_keys=False, width=120, explicit_start=True))


def needs(chosen: settings.Settings, *, recovery: bool) -> list[dict[str, str]]:
    """Name the objects that must be there before the job: kind, name and the variable that names it."""
    needed = [
        ("PersistentVolumeClaim", chosen.code_claim, "job_kubernetes.code_claim"),
        ("Secret", chosen.tls_secret, "job_kubernetes.tls_secret"),
        ("PersistentVolumeClaim", chosen.recovery_claim if recovery else "", "job_kubernetes.recovery_claim"),
        ("ServiceAccount", chosen.service_account, "job_kubernetes.service_account"),
        *(("PersistentVolumeClaim", volume.claim, "job_kubernetes.volumes") for volume in chosen.volumes),
        *(("Secret", name, "job_kubernetes.image_pull_secrets") for name in chosen.image_pull_secrets),
    ]
    return [{"kind": kind, "name": name, "variable": variable} for kind, name, variable in needed if name]


def made_beside(chosen: settings.Settings, *, secrets: bool) -> list[str]:
    """Name the kinds of objects that a launch makes beside the job's resource and its pods."""
    made = {"configmaps": chosen.code == "configmap", "services": chosen.resource == "Job", "secrets": secrets}
    return [plural for plural, wanted in made.items() if wanted]


def _placement(job: Job, chosen: settings.Settings, pods: int) -> list[Finding]:
    """Find numbers of pods, ranks and devices that the resource cannot have."""
    findings = []
    one_rank = "PyTorchJob or Job with job_launcher: torchrun, which starts several in a pod"
    if pods < 1:
        findings.append(
            Finding(
                "job_nodes",
                "0, all hosts of the inventory",
                "how many pods with ranks the job has: a cluster has no hosts of the inventory",
                "set job_nodes",
            )
        )
    if (job.ranks_per_node or 1) > 1 and (chosen.resource == "MSJob" or job.launcher == "direct"):
        who = "an MSJob" if chosen.resource == "MSJob" else "job_launcher: direct"
        findings.append(
            Finding(
                "job_ranks_per_node",
                f"{job.ranks_per_node} with {who}",
                "1: each pod is one rank there",
                (
                    "set job_ranks_per_node: 1 and a larger job_nodes"
                    + ("" if chosen.resource == "MSJob" else f", or use {one_rank}")
                ),
            )
        )
    if job.devices:
        findings.append(
            Finding(
                "job_devices",
                str(list(job.devices)),
                "auto or none: the cluster's device plugin chooses which devices a pod gets",
                "set job_devices: auto and job_ranks_per_node to their number",
            )
        )
    if job.devices is None and not chosen.device_resource:
        findings.append(
            Finding(
                "job_devices",
                "auto without job_kubernetes.device_resource",
                "the resource by which pods ask for devices",
                "set job_kubernetes.device_resource (nvidia.com/gpu, huawei.com/Ascend910), or job_devices: none",
            )
        )
    if job.devices is None and chosen.device_resource and job.ranks_per_node is None:
        findings.append(
            Finding(
                "job_ranks_per_node",
                "auto",
                f"how many {chosen.device_resource} each pod gets, a rank for each",
                "set job_ranks_per_node",
            )
        )
    if job.restarts.most and chosen.resource == "Job":
        findings.append(
            Finding(
                "job_max_restarts",
                f"{job.restarts.most} with a plain Job",
                "0: a pod that comes back alone finds no rendezvous",
                "leave job_max_restarts out, or use a resource whose operator starts again: job_kubernetes.resource",
            )
        )
    if job.restarts.recovery and not chosen.recovery_claim:
        findings.append(
            Finding(
                "job_recovery",
                "true without job_kubernetes.recovery_claim",
                "a claim that scheduler and workers can all write to, for MindSpore's recovery files",
                "set job_kubernetes.recovery_claim, or leave job_recovery out",
            )
        )
    return findings


def _refused(job: Job) -> list[Finding]:
    """Find what a job file may ask for on hosts of the inventory and pods cannot have."""
    findings = []
    if job.network:
        findings.append(
            Finding(
                "job_network",
                job.network,
                "nothing: a pod has the networks of its cluster",
                "leave job_network out; NCCL_SOCKET_IFNAME and GLOO_SOCKET_IFNAME can be set in job_env",
            )
        )
    if job.restarts.recovery_path:
        findings.append(
            Finding(
                "job_recovery_path",
                job.restarts.recovery_path,
                "nothing: paths of hosts are not those of pods",
                "leave job_recovery_path out; the claim job_kubernetes.recovery_claim is the place",
            )
        )
    if job.data:
        findings.append(
            Finding(
                "job_data",
                ", ".join(job.data),
                "nothing: paths of hosts are not those of pods",
                "leave job_data out and mount the data with job_kubernetes.volumes",
            )
        )
    return findings
