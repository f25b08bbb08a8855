# SPDX-License-Identifier: Apache-2.0
"""A job as manifests: its resource, the ConfigMap with its code, and for a plain Job program and Service of its pods.

All objects and pods have the label `trainyard-job`. job_nodes is the number of pods with ranks, job_spares that of
further ones of a plain Job, and job_ranks_per_node the number of ranks in each.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import Any

from ....base.findings import Finding
from ....slurm.allocation import POD_PORT, UNFIT
from ...file.job import SILENT_AFTER_S
from .pods import (
    ARCHIVE,
    LABEL,
    MPIRUN,
    PROGRAM_FILE,
    RANK,
    SOURCE,
    TOKEN_KEY,
    VALUES_KEY,
    Manifest,
    Request,
    environment,
    literal,
    pod_template,
    program_command,
    program_name,
    secret_name,
    source_name,
    tls_name,
)
from .resources import Resource

# Upper bound of the API for the values of a ConfigMap, in bytes before base64.
MAX_CONFIGMAP = 1 << 20
# To plan, to meet and to end, in seconds.
_BESIDE_S = 300
# From Kubernetes 1.29 on: a pod that ends does not take the others and their logs with it, and no other replaces it.
# Where the first one finds that the job cannot run (UNFIT), no pod can.
_PODS_END_ALONE: Manifest = {
    "backoffLimitPerIndex": 0,
    "podReplacementPolicy": "Failed",
    "podFailurePolicy": {"rules": [{"action": "FailJob", "onExitCodes": {"operator": "In", "values": [UNFIT]}}]},
}


def secrets(name: str, env: Mapping[str, str], files: Mapping[str, str], token: str = "") -> list[Manifest]:
    """Return the Secrets of a job for its secret variables and its files (base64 by path).

    The pods of a plain Job meet by a `token`, and read the rest as one file, as Slurm's hosts do.
    """
    made: list[Manifest] = []
    if token:
        values = {"secret_env": dict(env), "secret_files": dict(files)}
        env, files = {TOKEN_KEY: token, VALUES_KEY: json.dumps(values)}, {}
    if env:
        made.append({"metadata": {"name": secret_name(name)}, "stringData": dict(env)})
    if files:
        # Keys of a Secret have no folders.
        data = {path.rpartition("/")[2]: content for path, content in files.items()}
        made.append({"metadata": {"name": tls_name(name)}, "data": data})
    for each in made:
        each.update({"apiVersion": "v1", "kind": "Secret", "type": "Opaque"})
        each["metadata"]["labels"] = {LABEL: name}
    return made


def objects(settings: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """Return apiVersion, kind and name of all objects that a job may have in a cluster, the owner of its pods first."""
    name = settings["name"]
    return [
        (settings["api_version"], settings["resource"], name),
        ("v1", "Service", name),
        ("v1", "ConfigMap", source_name(name)),
        ("v1", "ConfigMap", program_name(name)),
        ("v1", "Secret", secret_name(name)),
        ("v1", "Secret", tls_name(name)),
    ]


def names_appended(resource: Resource) -> int:
    """Return the length of the longest suffix of the job's name, in pods and in our own objects."""
    return max(len(resource.longest), len(program_name("")))


def manifests(request: Request) -> list[Manifest]:
    """Return the objects in the order in which they are created. Secrets, which are in no file, come before them."""
    made: list[Manifest] = []
    if request.settings.code == "configmap":
        data = {"metadata": _metadata(request, SOURCE), "binaryData": {ARCHIVE: request.archive}}
        made.append({"apiVersion": "v1", "kind": "ConfigMap", **data})
    if request.has_monitors:
        made.append(_service(request))
    spec_of = {"Job": _job_spec, "MPIJob": _mpi_spec, "MSJob": _ms_spec}
    resource = request.resource
    metadata = _metadata(request)
    spec = spec_of[resource.kind](request)
    return [*made, {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": metadata, "spec": spec}]


def program(name: str, namespace: str, job_id: str, packed: bytes) -> Manifest:
    """Return the ConfigMap with the program of a plain Job."""
    data = {PROGRAM_FILE: base64.b64encode(packed).decode()}
    metadata = _described(program_name(name), name, namespace, job_id)
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "binaryData": data}


def too_large(packed: bytes) -> list[Finding]:
    """Find a program that does not fit into its ConfigMap, as the variables of its job are long."""
    if len(packed) <= MAX_CONFIGMAP:
        return []
    found = f"{-(-len(packed) >> 10)} KiB of variables and program, packed"
    expected = f"at most {MAX_CONFIGMAP >> 10} KiB, as the pods have them in a ConfigMap"
    action = "move long texts from job_command and job_env into a file of job_source"
    return [Finding("job file", found, expected, action)]


def _metadata(request: Request, ending: str = "") -> Manifest:
    return _described(request.name + ending, request.name, request.settings.namespace, request.job_id)


def _described(name: str, job: str, namespace: str, job_id: str) -> Manifest:
    labels = {LABEL: job, "app.kubernetes.io/managed-by": "trainyard"}
    placed = {"namespace": namespace} if namespace else {}
    return {"name": name, "labels": labels, "annotations": {"trainyard-job-id": job_id}, **placed}


def _service(request: Request) -> Manifest:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": _metadata(request),
        "spec": {
            "clusterIP": "None",
            "selector": {LABEL: request.name},
            # Pods look up the first one before it is ready.
            "publishNotReadyAddresses": True,
            "ports": [{"name": "trainyard", "port": POD_PORT, "targetPort": POD_PORT}],
        },
    }


def _job_spec(request: Request) -> Manifest:
    return {
        "completionMode": "Indexed",
        "completions": request.pods,
        "parallelism": request.pods,
        **(_PODS_END_ALONE if request.pods_end_alone else {"backoffLimit": 0}),
        # The monitors keep job_timeout, from the start of the ranks on.
        "activeDeadlineSeconds": request.job.timeout_s + request.grace_s + SILENT_AFTER_S + _BESIDE_S,
        **_time_to_live(request),
        "template": pod_template(request, "worker", program_command(), subdomain=request.name),
    }


def _mpi_spec(request: Request) -> Manifest:
    exported = ["PATH", "MASTER_ADDR", *environment(request), *request.job.secret_env]
    command = [
        "sh",
        "-c",
        literal(MPIRUN),
        "mpirun",
        *(["--allow-run-as-root"] if request.settings.ssh_mount_path.startswith("/root/") else []),
        "-n",
        str(request.world_size),
        # Otherwise all threads of a rank would share one core.
        "--bind-to",
        "none",
        *(["-wdir", request.code_dir] if request.code_dir else []),
        *(word for name, value in request.job.mpi.parameters.items() for word in ("--mca", name, literal(value))),
        *(word for name in exported for word in ("-x", name)),
        "sh",
        "-c",
        RANK,
        "rank",
        *(literal(word) for word in request.job.command),
    ]
    launcher = pod_template(request, "launcher", command, devices=False)
    worker = pod_template(request, "worker", ["/usr/sbin/sshd", "-De"])
    return {
        "slotsPerWorker": request.ranks_per_pod,
        "runPolicy": {
            # Workers of an MPIJob serve logins and never exit on their own.
            **_run_policy(request),
            "cleanPodPolicy": "All" if request.settings.clean_pods == "All" else "Running",
        },
        "sshAuthMountPath": request.settings.ssh_mount_path,
        "launcherCreationPolicy": "WaitForWorkersReady",
        "mpiImplementation": "OpenMPI",
        "mpiReplicaSpecs": {
            "Launcher": _replica(request, 1, launcher),
            "Worker": {**_replica(request, request.pods, worker), "restartPolicy": "Never"},
        },
    }


def _ms_spec(request: Request) -> Manifest:
    command = [literal(word) for word in request.job.command]
    servers = request.settings.servers
    # The operator sets no variables for a single worker alone, which trains as without a cluster.
    alone = request.pods == 1 and not (servers or request.tls_secret or request.job.restarts.recovery)
    counts = {"Scheduler": 0 if alone else 1, "PS": servers, "Worker": request.pods}
    roles = {"Scheduler": "scheduler", "PS": "server", "Worker": "worker"}
    return {
        "runPolicy": _run_policy(request),
        "successPolicy": request.settings.success,
        "msReplicaSpecs": {
            kind: _replica(request, count, pod_template(request, roles[kind], command, devices=kind == "Worker"))
            for kind, count in counts.items()
            if count
        },
    }


def _replica(request: Request, replicas: int, template: Manifest) -> Manifest:
    restart = "OnFailure" if request.job.restarts.max_restarts else "Never"
    return {"replicas": replicas, "restartPolicy": restart, "template": template}


def _time_to_live(request: Request) -> Manifest:
    return {} if request.settings.keep_s is None else {"ttlSecondsAfterFinished": request.settings.keep_s}


def _run_policy(request: Request) -> Manifest:
    return {
        "cleanPodPolicy": request.settings.clean_pods,
        "activeDeadlineSeconds": request.job.timeout_s,
        "backoffLimit": request.job.restarts.max_restarts,
        **_time_to_live(request),
    }
