# SPDX-License-Identifier: Apache-2.0
"""A job as manifests: its resource, the ConfigMap with its code, and for a plain Job the Service of its rendezvous.

All objects and pods carry the label `trainyard-job`, by which they are found again. Each pod runs as many ranks as
job_processes_per_node says; job_nodes is the number of pods with ranks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .. import tls
from ..specification import Job
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
_SOURCE = "-source"
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
    processes: int
    archive: str = ""

    @property
    def world_size(self) -> int:
        """Number of ranks."""
        return self.pods * self.processes

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
    return f"{name}{_SOURCE}"


def secret_name(name: str) -> str:
    """Name the Secret with job_secret_env."""
    return f"{name}-env"


def tls_name(name: str) -> str:
    """Name the Secret with the files of job_tls."""
    return f"{name}-tls"


def secrets(name: str, env: Mapping[str, str], files: Mapping[str, str]) -> list[Manifest]:
    """Return the Secrets of a job: its secret variables, and files by path as base64; none for what is empty."""
    made: list[Manifest] = []
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
    """Return all that a job can be in a cluster, its pods first: apiVersion, kind and name of each object."""
    name = settings["name"]
    return [
        (settings["api_version"], settings["resource"], name),
        ("v1", "Service", name),
        ("v1", "ConfigMap", source_name(name)),
        ("v1", "Secret", secret_name(name)),
        ("v1", "Secret", tls_name(name)),
    ]


def names_appended(resource: Resource) -> int:
    """Tell how many characters are appended to the job's name at most, in pods and in our own objects."""
    return max(len(resource.longest), len(_SOURCE))


def manifests(request: Request) -> list[Manifest]:
    """Return what is applied, in this order; the Secrets, which are in no file, come before."""
    made: list[Manifest] = []
    if request.settings.code == "configmap":
        made.append(
            {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": _metadata(request, _SOURCE),
                "binaryData": {ARCHIVE: request.archive},
            }
        )
    if request.settings.resource == "Job":
        made.append(_service(request))
    build = {"Job": _job, "PyTorchJob": _pytorch_job, "MPIJob": _mpi_job, "MSJob": _ms_job}
    return [*made, build[request.settings.resource](request)]


def _metadata(request: Request, ending: str = "", *, queued: bool = False) -> Manifest:
    labels = {LABEL: request.name, "app.kubernetes.io/managed-by": "trainyard"}
    if queued and request.settings.queue and request.settings.queue_system == "kueue":
        labels["kueue.x-k8s.io/queue-name"] = request.settings.queue
    made: Manifest = {
        "name": request.name + ending,
        "labels": labels,
        "annotations": {"trainyard-job-id": request.job_id},
    }
    if request.settings.namespace:
        made["namespace"] = request.settings.namespace
    return made


def _service(request: Request) -> Manifest:
    name, number = request.port
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": _metadata(request),
        "spec": {
            "clusterIP": "None",
            "selector": {LABEL: request.name},
            # A rank looks for the first one before that is ready to serve anything.
            "publishNotReadyAddresses": True,
            "ports": [{"name": name, "port": number, "targetPort": number}],
        },
    }


def _job(request: Request) -> Manifest:
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": _metadata(request, queued=True),
        "spec": {
            "completionMode": "Indexed",
            "completions": request.pods,
            "parallelism": request.pods,
            # A rank that comes back alone finds no rendezvous any more: one failure is the job's.
            "backoffLimit": 0,
            "activeDeadlineSeconds": request.job.timeout_s,
            **_kept(request),
            "template": _template(request, "worker", _rank_command(request), subdomain=request.name),
        },
    }


def _pytorch_job(request: Request) -> Manifest:
    template = _template(request, "worker", _rank_command(request))
    replicas: dict[str, Any] = {
        "Master": {**_replica(request, 1), "template": _template(request, "master", _rank_command(request))}
    }
    if request.pods > 1:
        replicas["Worker"] = {**_replica(request, request.pods - 1), "template": template}
    return {
        "apiVersion": request.resource.api_version,
        "kind": "PyTorchJob",
        "metadata": _metadata(request, queued=True),
        "spec": {
            "runPolicy": _run_policy(request, request.pods),
            "nprocPerNode": str(request.processes),
            "pytorchReplicaSpecs": replicas,
        },
    }


# Each rank learns by these lines what torch and others read; the hostfile is the operator's.
_MPIRUN = "export MASTER_ADDR=$(sed -n '1{s/[: ].*//p;q}' /etc/mpi/hostfile); exec mpirun \"$@\""
_RANK = (
    "export RANK=$OMPI_COMM_WORLD_RANK WORLD_SIZE=$OMPI_COMM_WORLD_SIZE LOCAL_RANK=$OMPI_COMM_WORLD_LOCAL_RANK "
    'LOCAL_WORLD_SIZE=$OMPI_COMM_WORLD_LOCAL_SIZE; exec "$@"'
)


def _mpi_job(request: Request) -> Manifest:
    exported = ["PATH", "MASTER_ADDR", *_environment(request), *request.job.secret_env]
    command = [
        "sh",
        "-c",
        literal(_MPIRUN),
        "mpirun",
        *(["--allow-run-as-root"] if request.settings.ssh_mount_path.startswith("/root/") else []),
        "-n",
        str(request.world_size),
        # Or all threads of a rank would share one core.
        "--bind-to",
        "none",
        *(["-wdir", request.code_dir] if request.code_dir else []),
        *(word for name, value in request.job.mpi_parameters.items() for word in ("--mca", name, literal(value))),
        *(word for name in exported for word in ("-x", name)),
        "sh",
        "-c",
        _RANK,
        "rank",
        *(literal(word) for word in request.job.command),
    ]
    launcher = _template(request, "launcher", command, devices=False)
    worker = _template(request, "worker", ["/usr/sbin/sshd", "-De"])
    return {
        "apiVersion": request.resource.api_version,
        "kind": "MPIJob",
        "metadata": _metadata(request, queued=True),
        "spec": {
            "slotsPerWorker": request.processes,
            "runPolicy": {
                # MPIJob's workers serve logins and never end by themselves.
                **_run_policy(request, request.pods + 1),
                "cleanPodPolicy": "All" if request.settings.clean_pods == "All" else "Running",
            },
            "sshAuthMountPath": request.settings.ssh_mount_path,
            "launcherCreationPolicy": "WaitForWorkersReady",
            "mpiImplementation": "OpenMPI",
            "mpiReplicaSpecs": {
                "Launcher": {**_replica(request, 1), "template": launcher},
                "Worker": {"replicas": request.pods, "restartPolicy": "Never", "template": worker},
            },
        },
    }


def _ms_job(request: Request) -> Manifest:
    command = [literal(word) for word in request.job.command]
    return {
        "apiVersion": request.resource.api_version,
        "kind": "MSJob",
        "metadata": _metadata(request, queued=True),
        "spec": {
            "runPolicy": _run_policy(request, request.pods + 1),
            "successPolicy": request.settings.success,
            "msReplicaSpecs": {
                "Scheduler": {
                    **_replica(request, 1),
                    "template": _template(request, "scheduler", command, devices=False),
                },
                "Worker": {**_replica(request, request.pods), "template": _template(request, "worker", command)},
            },
        },
    }


def _replica(request: Request, replicas: int) -> Manifest:
    return {"replicas": replicas, "restartPolicy": "OnFailure" if request.job.max_restarts else "Never"}


def _kept(request: Request) -> Manifest:
    return {} if request.settings.keep_s is None else {"ttlSecondsAfterFinished": request.settings.keep_s}


def _run_policy(request: Request, together: int) -> Manifest:
    settings = request.settings
    policy: Manifest = {
        "cleanPodPolicy": settings.clean_pods,
        "activeDeadlineSeconds": request.job.timeout_s,
        "backoffLimit": request.job.max_restarts,
        **_kept(request),
    }
    scheduling: Manifest = {}
    if settings.queue and settings.queue_system == "volcano":
        # All pods of a job or none: half a job holds devices and waits for the rest.
        scheduling = {"minAvailable": together, "queue": settings.queue}
        if settings.priority_class:
            scheduling["priorityClass"] = settings.priority_class
    return {**policy, **({"schedulingPolicy": scheduling} if scheduling else {})}


def _rank_command(request: Request) -> list[str]:
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
            f"--local_worker_num={request.processes}",
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
        str(request.processes),
        "--node-rank",
        index,
        "--master-addr",
        address,
        "--master-port",
        port,
        # Several ranks share one log: each line says whose it is.
        *(["--tee", "3"] if request.processes > 1 else []),
        "--no-python",
        *words,
    ]


def _environment(request: Request) -> dict[str, str]:
    """Return the environment that all ranks share; job_env wins."""
    job, settings = request.job, request.settings
    made = {"PYTHONUNBUFFERED": "1", "TRAINYARD_JOB_ID": request.job_id}
    if settings.resource == "MPIJob":
        made["MASTER_PORT"] = str(request.port[1])
    if settings.resource == "MSJob":
        made["MS_TOPO_TIMEOUT"] = str(job.join_timeout_s)
        made["MS_NODE_TIMEOUT"] = str(job.heartbeat_timeout_s)
        made["MS_RECEIVE_MSG_TIMEOUT"] = str(job.message_timeout_s)
        if job.recovery:
            made["MS_ENABLE_RECOVERY"] = "1"
            made["MS_RECOVERY_PATH"] = RECOVERY_DIR
    if request.tls_secret:
        made.update(tls.environment(TLS_HOME))
    return {**made, **{name: literal(value) for name, value in job.env.items()}}


def _template(
    request: Request, role: str, command: Sequence[str], *, devices: bool = True, subdomain: str = ""
) -> Manifest:
    job, settings = request.job, request.settings
    env: list[Manifest] = []
    if settings.resource == "Job":
        name = "RANK" if job.launcher == "direct" else "NODE_RANK"
        env.append({"name": name, "valueFrom": {"fieldRef": {"fieldPath": _INDEX}}})
        if job.launcher == "direct":
            address = f"{request.name}-0.{request.name}"
            env += [
                {"name": "WORLD_SIZE", "value": str(request.world_size)},
                {"name": "LOCAL_RANK", "value": "0"},
                {"name": "LOCAL_WORLD_SIZE", "value": "1"},
                {"name": "MASTER_ADDR", "value": address},
                {"name": "MASTER_PORT", "value": str(request.port[1])},
            ]
    env += [{"name": key, "value": value} for key, value in _environment(request).items()]
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
        extended[settings.device_resource] = str(request.processes)
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
    if request.job.recovery and settings.recovery_claim:
        add("recovery", RECOVERY_DIR, _claim(settings.recovery_claim))
    for number, volume in enumerate(settings.volumes):
        given = _claim(volume.claim) if volume.claim else {"hostPath": {"path": volume.host_path}}
        add(f"volume-{number}", volume.path, given, read_only=volume.read_only)
    return volumes, mounts


def _claim(name: str) -> Manifest:
    return {"persistentVolumeClaim": {"claimName": name}}
