# SPDX-License-Identifier: Apache-2.0
"""The pods of a job: what runs in them, with which environment, resources and volumes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ....slurm.allocation import PODS, TOKEN_FILE
from ...file import mindspore_tls
from ...file.job import Job
from ...launchers.mindspore import timeouts
from .resources import RESOURCES, Resource
from .settings import Settings

LABEL = "trainyard-job"
ROLE_LABEL = "trainyard-role"
SOURCE_DIR = "/trainyard/source"
PACKED_DIR = "/trainyard/packed"
# A plain Job has a local folder in each pod, the program, and a Secret with the values of job_secret_env and the token.
STATE_DIR, PROGRAM_DIR = "/trainyard/state", "/trainyard/program"
SECRETS_DIR, _, TOKEN_KEY = TOKEN_FILE.rpartition("/")
PROGRAM_FILE, VALUES_KEY = "program.zip", "secrets.json"
# Its folder tls/ has the certificates, as in the folder of a job on a node.
TLS_HOME = "/trainyard"
RECOVERY_DIR = "/trainyard/recovery"
ARCHIVE = "source.tar.gz"
SOURCE = "-source"
# The variables that operators inject rely on these names and numbers.
MS_PORT = ("msjob-port", 2222)
JOB_PORT = ("rendezvous", 29500)
# Seconds for a pod to end and to print its last lines, beside the time to save.
_MARGIN_S = 15

Manifest = dict[str, Any]


@dataclass(frozen=True)
class Request:
    """The input of the manifests. `archive` is the packed source as base64, or "" if the pods have the code.

    `pods` are those with ranks and the spares.
    """

    job: Job
    settings: Settings
    job_id: str
    name: str
    pods: int
    ranks_per_pod: int
    archive: str = ""
    # Whether the cluster lets one pod of a Job end without the others.
    pods_end_alone: bool = True

    @property
    def world_size(self) -> int:
        """Number of ranks."""
        return (self.pods - self.job.restarts.spares) * self.ranks_per_pod

    @property
    def resource(self) -> Resource:
        """The kind of resource that the job is."""
        return RESOURCES[self.settings.resource]

    @property
    def port(self) -> tuple[str, int]:
        """Name and number of the rendezvous port; operators require these names."""
        name, number = MS_PORT if self.settings.resource == "MSJob" else JOB_PORT
        return name, self.job.port or number

    @property
    def tls_secret(self) -> str:
        """Name of the Secret with MindSpore's TLS files, the site's own or that of an operator's job_tls, or ""."""
        return self.settings.tls_secret or (tls_name(self.name) if self.job.tls and not self.has_monitors else "")

    @property
    def tls_env(self) -> dict[str, str]:
        """Variables by which MindSpore finds its TLS files."""
        return dict(mindspore_tls.environment(TLS_HOME)) if self.tls_secret else {}

    @property
    def has_monitors(self) -> bool:
        """Whether our monitors run the ranks, and no operator."""
        return self.settings.resource == "Job"

    @property
    def grace_s(self) -> int:
        """Seconds that the cluster waits after SIGTERM, so that the ranks can save and the pod print its last lines."""
        return self.job.stop.grace_s + _MARGIN_S if self.has_monitors else 0

    @property
    def code_dir(self) -> str:
        """Working folder of the ranks, or "" for that of the image."""
        return SOURCE_DIR if self.settings.code == "configmap" else self.settings.code_path


def literal(text: str) -> str:
    """Escape a text so that the cluster does not expand $(NAME) in it."""
    return text.replace("$(", "$$(")


def source_name(name: str) -> str:
    """Name the ConfigMap with the packed source."""
    return f"{name}{SOURCE}"


def program_name(name: str) -> str:
    """Name the ConfigMap with the program of a plain Job."""
    return f"{name}-program"


def secret_name(name: str) -> str:
    """Name the Secret with job_secret_env, and for a plain Job the token of its pods."""
    return f"{name}-env"


def tls_name(name: str) -> str:
    """Name the Secret with the files of job_tls."""
    return f"{name}-tls"


# These lines set the variables that torch and others read; the operator writes the hostfile.
MPIRUN = "export MASTER_ADDR=$(sed -n '1{s/[: ].*//p;q}' /etc/mpi/hostfile); exec mpirun \"$@\""
RANK = (
    "export RANK=$OMPI_COMM_WORLD_RANK WORLD_SIZE=$OMPI_COMM_WORLD_SIZE LOCAL_RANK=$OMPI_COMM_WORLD_LOCAL_RANK "
    'LOCAL_WORLD_SIZE=$OMPI_COMM_WORLD_LOCAL_SIZE; exec "$@"'
)


def program_command() -> list[str]:
    """Return the command of each pod of a plain Job: the program of all schedulers, which starts the ranks."""
    return ["python3", "-IS", f"{PROGRAM_DIR}/{PROGRAM_FILE}", "node"]


def environment(request: Request) -> dict[str, str]:
    """Return the common environment of all ranks; job_env takes precedence."""
    job, settings = request.job, request.settings
    made = {"PYTHONUNBUFFERED": "1", "TRAINYARD_JOB_ID": request.job_id}
    if settings.resource == "MPIJob":
        made["MASTER_PORT"] = str(request.port[1])
    if settings.resource == "MSJob":
        made.update(timeouts(job))
        if job.restarts.recovery:
            made.update(MS_ENABLE_RECOVERY="1", MS_RECOVERY_PATH=RECOVERY_DIR)
    made.update(request.tls_env)
    return {**made, **{name: literal(value) for name, value in job.env.items()}}


def pod_template(
    request: Request, role: str, command: Sequence[str], *, devices: bool = True, subdomain: str = ""
) -> Manifest:
    """Return the template of the pods with this role."""
    volumes, mounts = _volumes(request)
    resources = _resources(request, devices)
    spec: Manifest = {"containers": [_container(request, command, resources, mounts, devices)]}
    if request.settings.code == "configmap" and not request.has_monitors:
        spec["initContainers"] = [_unpack_container(request, resources)]
    if request.has_monitors:
        # An operator sets the policy of its own replicas here.
        spec["restartPolicy"] = "Never"
        spec["terminationGracePeriodSeconds"] = request.grace_s
    if subdomain:
        spec["subdomain"] = subdomain
    if volumes:
        spec["volumes"] = volumes
    spec.update(_placement(request.settings))
    return {
        "metadata": {
            "labels": {LABEL: request.name, ROLE_LABEL: role},
            # The proxy of a service mesh keeps a pod running after its ranks have ended, and does not support NCCL.
            "annotations": {"sidecar.istio.io/inject": "false", "trainyard-job-id": request.job_id},
        },
        "spec": spec,
    }


def _container(
    request: Request, command: Sequence[str], resources: Manifest, mounts: list[Manifest], devices: bool
) -> Manifest:
    settings = request.settings
    env = [{"name": key, "value": value} for key, value in environment(request).items()]
    secret = secret_name(request.name)
    secrets = [
        {"name": key, "valueFrom": {"secretKeyRef": {"name": secret, "key": key}}} for key in request.job.secret_env
    ]
    if request.has_monitors:
        # The rest is in the plan that the pods make.
        env, secrets = [*_pod_variables(request), *({"name": n, "value": v} for n, v in request.tls_env.items())], []
    container: Manifest = {
        "name": request.resource.container,
        "image": settings.image,
        "command": list(command),
        "env": [*env, *secrets],
    }
    if settings.image_pull_policy:
        container["imagePullPolicy"] = settings.image_pull_policy
    if request.code_dir and not request.has_monitors:
        container["workingDir"] = request.code_dir
    if resources:
        container["resources"] = resources
    if devices and settings.rdma_resource:
        # RDMA locks the memory that it registers.
        container["securityContext"] = {"capabilities": {"add": ["IPC_LOCK"]}}
    if settings.resource != "MPIJob":
        container["ports"] = [{"name": request.port[0], "containerPort": request.port[1]}]
    if mounts:
        container["volumeMounts"] = mounts
    return container


def _pod_variables(request: Request) -> list[Manifest]:
    """Return what the program in a pod of a plain Job needs to know; the cluster adds JOB_COMPLETION_INDEX."""
    address = {"name": "TRAINYARD_ADDRESS", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}
    needed, patience_s = request.pods - request.job.restarts.spares, request.job.timeout_s
    return [{"name": PODS, "value": f"{request.pods} {request.name} {needed} {patience_s}"}, address]


def _unpack_container(request: Request, resources: Manifest) -> Manifest:
    """Return the container that unpacks the source before the ranks start."""
    unpack: Manifest = {
        "name": "unpack",
        "image": request.settings.image,
        "command": ["tar", "-xzf", f"{PACKED_DIR}/{ARCHIVE}", "-C", SOURCE_DIR, "--no-same-owner"],
        "volumeMounts": [
            {"name": "source", "mountPath": SOURCE_DIR},
            {"name": "packed", "mountPath": PACKED_DIR, "readOnly": True},
        ],
    }
    if request.settings.image_pull_policy:
        unpack["imagePullPolicy"] = request.settings.image_pull_policy
    if resources:
        # A quota may require a share of every container.
        unpack["resources"] = {
            kind: {name: value for name, value in part.items() if name in ("cpu", "memory")}
            for kind, part in resources.items()
            if any(name in ("cpu", "memory") for name in part)
        }
    return unpack


def _placement(settings: Settings) -> Manifest:
    spec = {
        "hostNetwork": settings.host_network,
        # With another policy, the names of Services would not resolve.
        "dnsPolicy": "ClusterFirstWithHostNet" if settings.host_network else "",
        "nodeSelector": dict(settings.node_selector),
        "tolerations": [dict(item) for item in settings.tolerations],
        "imagePullSecrets": [{"name": name} for name in settings.image_pull_secrets],
        "serviceAccountName": settings.service_account,
        "priorityClassName": settings.priority_class,
    }
    return {name: value for name, value in spec.items() if value}


def _resources(request: Request, devices: bool) -> Manifest:
    settings = request.settings
    resources = {name: value for name, value in (("cpu", settings.cpu), ("memory", settings.memory)) if value}
    if devices and settings.device_resource and request.job.devices != ():
        resources[settings.device_resource] = str(request.ranks_per_pod)
    if devices and settings.rdma_resource:
        resources[settings.rdma_resource] = "1"
    # Extended resources need equal requests and limits, and such pods are evicted last.
    return {"requests": resources, "limits": dict(resources)} if resources else {}


def _volumes(request: Request) -> tuple[list[Manifest], list[Manifest]]:
    settings = request.settings
    volumes: list[Manifest] = []
    mounts: list[Manifest] = []

    def add(name: str, path: str, source: Manifest, *, read_only: bool = False, mounted: bool = True) -> None:
        volumes.append({"name": name, **source})
        if mounted:
            mounts.append({"name": name, "mountPath": path, **({"readOnly": True} if read_only else {})})

    if request.has_monitors:
        add("state", STATE_DIR, {"emptyDir": {}})
        add("program", PROGRAM_DIR, {"configMap": {"name": program_name(request.name)}}, read_only=True)
        # Readable by any user of the image, whose ranks could read the program's own copy anyway.
        secret = {"secretName": secret_name(request.name), "defaultMode": 0o444}
        add("secrets", SECRETS_DIR, {"secret": secret}, read_only=True)
    elif settings.code == "configmap":
        add("source", SOURCE_DIR, {"emptyDir": {}})
    if settings.code == "configmap":
        packed = {"configMap": {"name": source_name(request.name)}}
        add("packed", PACKED_DIR, packed, read_only=True, mounted=request.has_monitors)
    if settings.code == "volume":
        add("code", settings.code_path, _claim(settings.code_claim))
    if settings.shared_memory:
        # The default of 64 MiB is too small for data loaders and NCCL.
        add("shm", "/dev/shm", {"emptyDir": {"medium": "Memory", "sizeLimit": settings.shared_memory}})  # noqa: S108
    if request.tls_secret:
        # Readable by any user of the image, as no other process is in the pod.
        source = {"secret": {"secretName": request.tls_secret, "defaultMode": 0o444}}
        add("tls", f"{TLS_HOME}/{mindspore_tls.FOLDER}", source, read_only=True)
    if request.job.restarts.recovery and settings.recovery_claim:
        add("recovery", RECOVERY_DIR, _claim(settings.recovery_claim))
    for number, volume in enumerate(settings.volumes):
        source = _claim(volume.claim) if volume.claim else {"hostPath": {"path": volume.host_path}}
        add(f"volume-{number}", volume.path, source, read_only=volume.read_only)
    return volumes, mounts


def _claim(name: str) -> Manifest:
    return {"persistentVolumeClaim": {"claimName": name}}
