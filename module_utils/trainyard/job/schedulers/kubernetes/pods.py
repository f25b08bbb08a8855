# SPDX-License-Identifier: Apache-2.0
"""The pods of a job: what runs in them, with which environment, resources and volumes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ...file import tls
from ...file.job import Job
from .resources import RESOURCES, Resource
from .settings import Settings

LABEL = "trainyard-job"


ROLE_LABEL = "trainyard-role"


SOURCE_DIR = "/trainyard/source"


PACKED_DIR = "/trainyard/packed"


# Whose tls/ has the certificates, as the folder of a job on a node does.
TLS_HOME = "/trainyard"


RECOVERY_DIR = "/trainyard/recovery"


ARCHIVE = "source.tar.gz"


SOURCE = "-source"


# What operators inject counts on these.
PYTORCH_PORT = ("pytorchjob-port", 23456)


MS_PORT = ("msjob-port", 2222)


JOB_PORT = ("rendezvous", 29500)


_INDEX = "metadata.annotations['batch.kubernetes.io/job-completion-index']"


Manifest = dict[str, Any]


@dataclass(frozen=True)
class Request:
    """All that makes the manifests. `archive` is the packed source as base64; "" where the pods have the code."""

    job: Job
    settings: Settings
    job_id: str
    name: str
    pods: int
    ranks_per_pod: int
    archive: str = ""

    @property
    def world_size(self) -> int:
        """Number of ranks."""
        return self.pods * self.ranks_per_pod

    @property
    def resource(self) -> Resource:
        """The kind of resource that the job is."""
        return RESOURCES[self.settings.resource]

    @property
    def port(self) -> tuple[str, int]:
        """Name and number of the port of the rendezvous, as the operator demands its name."""
        name, number = {"PyTorchJob": PYTORCH_PORT, "MSJob": MS_PORT}.get(self.settings.resource, JOB_PORT)
        return name, self.job.port or number

    @property
    def tls_secret(self) -> str:
        """Name of the Secret with MindSpore's TLS files: the site's own, or the one of job_tls; "" without TLS."""
        return self.settings.tls_secret or (tls_name(self.name) if self.job.tls else "")

    @property
    def code_dir(self) -> str:
        """Working folder of the ranks; "" for the image's own."""
        return SOURCE_DIR if self.settings.code == "configmap" else self.settings.code_path


def literal(text: str) -> str:
    """Write a text so that the cluster takes no $(NAME) in it for one of its variables."""
    return text.replace("$(", "$$(")


def source_name(name: str) -> str:
    """Name the ConfigMap with the packed source."""
    return f"{name}{SOURCE}"


def secret_name(name: str) -> str:
    """Name the Secret with job_secret_env."""
    return f"{name}-env"


def tls_name(name: str) -> str:
    """Name the Secret with the files of job_tls."""
    return f"{name}-tls"


# Each rank learns by these lines what torch and others read; the hostfile is the operator's.
MPIRUN = "export MASTER_ADDR=$(sed -n '1{s/[: ].*//p;q}' /etc/mpi/hostfile); exec mpirun \"$@\""


RANK = (
    "export RANK=$OMPI_COMM_WORLD_RANK WORLD_SIZE=$OMPI_COMM_WORLD_SIZE LOCAL_RANK=$OMPI_COMM_WORLD_LOCAL_RANK "
    'LOCAL_WORLD_SIZE=$OMPI_COMM_WORLD_LOCAL_SIZE; exec "$@"'
)


def rank_command(request: Request) -> list[str]:
    """Return what runs in each pod of a plain Job or a PyTorchJob."""
    job = request.job
    words = [literal(word) for word in job.command]
    if job.launcher == "direct":
        return words
    if request.settings.resource == "PyTorchJob":
        address, port, index = "$(MASTER_ADDR)", "$(MASTER_PORT)", "$(RANK)"
    else:
        address, port, index = f"{request.name}-0.{request.name}", str(request.port[1]), "$(NODE_RANK)"
    if job.launcher == "msrun":
        return [
            "msrun",
            f"--worker_num={request.world_size}",
            f"--local_worker_num={request.ranks_per_pod}",
            f"--master_addr={address}",
            f"--master_port={port}",
            f"--node_rank={index}",
            "--log_dir=/tmp/msrun",
            "--join=True",
            f"--cluster_time_out={job.join_timeout_s}",
            *words,
        ]
    return [
        "python",
        "-m",
        "torch.distributed.run",
        "--nnodes",
        str(request.pods),
        "--nproc-per-node",
        str(request.ranks_per_pod),
        "--node-rank",
        index,
        "--master-addr",
        address,
        "--master-port",
        port,
        # Several ranks share one log: each line says whose it is.
        *(["--tee", "3"] if request.ranks_per_pod > 1 else []),
        "--no-python",
        *words,
    ]


def environment(request: Request) -> dict[str, str]:
    """Return the environment that all ranks share; job_env wins."""
    job, settings = request.job, request.settings
    made = {"PYTHONUNBUFFERED": "1", "TRAINYARD_JOB_ID": request.job_id}
    if settings.resource == "MPIJob":
        made["MASTER_PORT"] = str(request.port[1])
    if settings.resource == "MSJob":
        made["MS_TOPO_TIMEOUT"] = str(job.join_timeout_s)
        made["MS_NODE_TIMEOUT"] = str(job.heartbeat_timeout_s)
        made["MS_RECEIVE_MSG_TIMEOUT"] = str(job.message_timeout_s)
        if job.restarts.recovery:
            made["MS_ENABLE_RECOVERY"] = "1"
            made["MS_RECOVERY_PATH"] = RECOVERY_DIR
    if request.tls_secret:
        made.update(tls.environment(TLS_HOME))
    return {**made, **{name: literal(value) for name, value in job.env.items()}}


def pod_template(
    request: Request, role: str, command: Sequence[str], *, devices: bool = True, subdomain: str = ""
) -> Manifest:
    """Return the template of the pods of one role, whose name is their label."""
    job, settings = request.job, request.settings
    env: list[Manifest] = []
    if settings.resource == "Job":
        for name in ("RANK", "NODE_RANK") if job.launcher == "direct" else ("NODE_RANK",):
            env.append({"name": name, "valueFrom": {"fieldRef": {"fieldPath": _INDEX}}})
        if job.launcher == "direct":
            address = f"{request.name}-0.{request.name}"
            env += [
                {"name": "WORLD_SIZE", "value": str(request.world_size)},
                {"name": "LOCAL_RANK", "value": "0"},
                {"name": "LOCAL_WORLD_SIZE", "value": "1"},
                {"name": "NNODES", "value": str(request.world_size)},
                {"name": "MASTER_ADDR", "value": address},
                {"name": "MASTER_PORT", "value": str(request.port[1])},
            ]
    env += [{"name": key, "value": value} for key, value in environment(request).items()]
    env += [
        {"name": key, "valueFrom": {"secretKeyRef": {"name": secret_name(request.name), "key": key}}}
        for key in job.secret_env
    ]
    volumes, mounts = _volumes(request)
    container: Manifest = {
        "name": request.resource.container,
        "image": settings.image,
        "command": list(command),
        "env": env,
    }
    if settings.image_pull_policy:
        container["imagePullPolicy"] = settings.image_pull_policy
    if request.code_dir:
        container["workingDir"] = request.code_dir
    resources = _resources(request, devices)
    if resources:
        container["resources"] = resources
    if devices and settings.rdma_resource:
        # RDMA pins the memory that it registers.
        container["securityContext"] = {"capabilities": {"add": ["IPC_LOCK"]}}
    if settings.resource != "MPIJob":
        container["ports"] = [{"name": request.port[0], "containerPort": request.port[1]}]
    if mounts:
        container["volumeMounts"] = mounts
    spec: Manifest = {"containers": [container]}
    if settings.code == "configmap":
        unpack: Manifest = {
            "name": "unpack",
            "image": settings.image,
            "command": ["tar", "-xzf", f"{PACKED_DIR}/{ARCHIVE}", "-C", SOURCE_DIR, "--no-same-owner"],
            "volumeMounts": [
                {"name": "source", "mountPath": SOURCE_DIR},
                {"name": "packed", "mountPath": PACKED_DIR, "readOnly": True},
            ],
        }
        if settings.image_pull_policy:
            unpack["imagePullPolicy"] = settings.image_pull_policy
        if resources:
            # Where a quota asks every container for its share.
            unpack["resources"] = {
                kind: {name: value for name, value in part.items() if name in ("cpu", "memory")}
                for kind, part in resources.items()
                if any(name in ("cpu", "memory") for name in part)
            }
        spec["initContainers"] = [unpack]
    if settings.resource == "Job":
        # An operator copies its own replicas' policy here.
        spec["restartPolicy"] = "Never"
    if subdomain:
        spec["subdomain"] = subdomain
    if volumes:
        spec["volumes"] = volumes
    if settings.host_network:
        spec["hostNetwork"] = True
        # Or names of Services would not resolve.
        spec["dnsPolicy"] = "ClusterFirstWithHostNet"
    if settings.node_selector:
        spec["nodeSelector"] = dict(settings.node_selector)
    if settings.tolerations:
        spec["tolerations"] = [dict(item) for item in settings.tolerations]
    if settings.image_pull_secrets:
        spec["imagePullSecrets"] = [{"name": name} for name in settings.image_pull_secrets]
    if settings.service_account:
        spec["serviceAccountName"] = settings.service_account
    if settings.priority_class:
        spec["priorityClassName"] = settings.priority_class
    return {
        "metadata": {
            "labels": {LABEL: request.name, ROLE_LABEL: role},
            # A mesh's proxy keeps a pod running when its ranks have ended, and speaks no NCCL.
            "annotations": {"sidecar.istio.io/inject": "false", "trainyard-job-id": request.job_id},
        },
        "spec": spec,
    }


def _resources(request: Request, devices: bool) -> Manifest:
    settings = request.settings
    plain = {name: value for name, value in (("cpu", settings.cpu), ("memory", settings.memory)) if value}
    extended: dict[str, str] = {}
    if devices and settings.device_resource and request.job.devices != ():
        extended[settings.device_resource] = str(request.ranks_per_pod)
    if devices and settings.rdma_resource:
        extended[settings.rdma_resource] = "1"
    whole = {**plain, **extended}
    # Extended resources must be the same in both; equal requests and limits make the pod the last to be evicted.
    return {"requests": dict(whole), "limits": dict(whole)} if whole else {}


def _volumes(request: Request) -> tuple[list[Manifest], list[Manifest]]:
    settings = request.settings
    volumes: list[Manifest] = []
    mounts: list[Manifest] = []

    def add(name: str, path: str, source: Manifest, *, read_only: bool = False, mounted: bool = True) -> None:
        volumes.append({"name": name, **source})
        if mounted:
            mounts.append({"name": name, "mountPath": path, **({"readOnly": True} if read_only else {})})

    if settings.code == "configmap":
        add("source", SOURCE_DIR, {"emptyDir": {}})
        add("packed", PACKED_DIR, {"configMap": {"name": source_name(request.name)}}, mounted=False)
    if settings.code == "volume":
        add("code", settings.code_path, _claim(settings.code_claim))
    if settings.shared_memory:
        # Containers get 64 MiB otherwise, which data loaders and NCCL outgrow.
        add("shm", "/dev/shm", {"emptyDir": {"medium": "Memory", "sizeLimit": settings.shared_memory}})  # noqa: S108
    if request.tls_secret:
        # Whatever user the image runs as: nobody else is in the pod.
        source = {"secret": {"secretName": request.tls_secret, "defaultMode": 0o444}}
        add("tls", f"{TLS_HOME}/{tls.FOLDER}", source, read_only=True)
    if request.job.restarts.recovery and settings.recovery_claim:
        add("recovery", RECOVERY_DIR, _claim(settings.recovery_claim))
    for number, volume in enumerate(settings.volumes):
        given = _claim(volume.claim) if volume.claim else {"hostPath": {"path": volume.host_path}}
        add(f"volume-{number}", volume.path, given, read_only=volume.read_only)
    return volumes, mounts


def _claim(name: str) -> Manifest:
    return {"persistentVolumeClaim": {"claimName": name}}
