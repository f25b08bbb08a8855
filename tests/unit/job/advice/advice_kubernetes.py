"""Launches on Kubernetes with findings, and what readers do for each part of the advice."""

from __future__ import annotations

import os

from advice_readers import AS_WRITTEN, together
from ansible.module_utils.trainyard.job.schedulers.kubernetes import kubernetes_findings
from ansible.module_utils.trainyard.job.schedulers.kubernetes.manifests import MAX_CONFIGMAP
from ansible.module_utils.trainyard_controller.job.schedulers.kubernetes_cluster import ClusterError
from launch_world import World

WITHOUT_OPERATOR = "job_kubernetes.resource: Job, which needs no operator"
RECOVERY = {"launcher": "mindspore", "recovery": True, "max_restarts": 1}


class Cluster:
    """A cluster without operators. Its client fails as the names of kubeconfig, context and namespace say."""

    server = "https://cluster:6443"

    def __init__(self, kubeconfig, context, namespace):
        self.namespace = namespace or "default"
        if kubeconfig == "missing":
            raise ClusterError(kubernetes_findings.no_configuration("no kubeconfig"))
        if context == "down":
            raise ClusterError(kubernetes_findings.unreachable(self.server, "no route to host"))
        for status in (kubeconfig, namespace):
            if status.isdigit():
                raise ClusterError(kubernetes_findings.api_error(int(status), "", "asking for its version"))

    def version(self):
        return "1.37"

    def serves(self, _, kind):
        return kind == "Job" or self.namespace == "operators"

    def may(self, *_):
        return self.namespace != "theirs", "RBAC"

    def has(self, _, name):
        return name != "missing"


def pods(options=None, **job):
    """Return a launch on a cluster with all operators, unless the job names another namespace."""
    given = {"nodes": 2, "devices": "none", "image": "registry.example/pytorch:2.13", "venv": None}
    world = World(scheduler="kubernetes", kubernetes=options or {}, **{**given, "namespace": "operators", **job})
    return world.having(groups={"compute": []})


def sized(world):
    return world.having(files={"train.py": "", "data": os.urandom(MAX_CONFIGMAP).hex()})


def own(**options):
    """Return a change of keys of job_kubernetes."""

    def change(world):
        kept = {**world.job["job_kubernetes"], **options}
        world.job["job_kubernetes"] = {key: value for key, value in kept.items() if value is not None}

    return change


def without_source(world):
    """Leave job_source out, which has a default in worlds."""
    world.job["job_source"] = ""


def on_a_volume(**options):
    return own(code="volume", code_claim="scripts", code_path="/scripts", **options)


def from_image(options=None, **job):
    world = pods(options, **job)
    without_source(world)
    return world


CASES = {
    "no kubeconfig": lambda _: (
        pods(kubeconfig="missing"),
        {"set job_kubeconfig and job_kube_context": {"kubeconfig": "right", "kube_context": "right"}},
    ),
    "a cluster that does not answer": lambda _: (
        pods(kube_context="down"),
        {"check job_kubeconfig and job_kube_context": {"kube_context": "right"}},
    ),
    "no login to the cluster": lambda _: (
        pods(kubeconfig="401"),
        {"use a kubeconfig with a valid token": {"kubeconfig": "right"}},
    ),
    "a forbidden request": lambda _: (
        pods(namespace="403"),
        {"set your own job_namespace": {"namespace": "operators"}},
    ),
    "an object that is not found": lambda _: (
        pods(namespace="404"),
        {"check job_namespace": {"namespace": "operators"}},
    ),
    "no right in a namespace": lambda _: (pods(namespace="theirs"), {"set job_namespace": {"namespace": "mine"}}),
    "no claim": lambda _: (
        pods({"volumes": [{"path": "/data", "claim": "missing"}]}),
        {"correct job_kubernetes.volumes": own(volumes=[{"path": "/data", "claim": "data"}])},
    ),
    **{
        f"no operator for a {kind}": lambda _, kind=kind, launcher=launcher, other=other, part=part: (
            pods({"resource": kind}, launcher=launcher, namespace="default"),
            {part: together({"launcher": other}, own(resource="Job"))},
        )
        for kind, launcher, other, part in (
            ("MPIJob", "mpirun", "torchrun", f"set job_launcher: torchrun and {WITHOUT_OPERATOR}"),
            ("MSJob", "mindspore", "msrun", f"set job_launcher: msrun and {WITHOUT_OPERATOR}"),
        )
    },
    # The variables of the job.
    "no number of pods": lambda _: (pods(nodes=None), {"set job_nodes": {"nodes": 2}}),
    "several ranks in a pod of MindSpore": lambda _: (
        pods(launcher="mindspore", ranks_per_node=2),
        {"set job_ranks_per_node: 1 and a larger job_nodes": {"ranks_per_node": 1, "nodes": 4}},
    ),
    "numbers of devices": lambda _: (
        pods(devices=[0, 1], launcher="torchrun"),
        {
            "set job_devices: auto, job_kubernetes.device_resource (nvidia.com/gpu, huawei.com/Ascend910) and "
            "job_ranks_per_node to their number": together(
                {"devices": "auto", "ranks_per_node": 2}, own(device_resource="nvidia.com/gpu")
            )
        },
    ),
    "numbers of devices of a known kind": lambda _: (
        pods({"device_resource": "nvidia.com/gpu"}, devices=[0, 1], launcher="torchrun"),
        {"set job_devices: auto and job_ranks_per_node to their number": {"devices": "auto", "ranks_per_node": 2}},
    ),
    "no kind of devices": lambda _: (
        pods(devices=None),
        {
            "set job_kubernetes.device_resource (nvidia.com/gpu, huawei.com/Ascend910) and job_ranks_per_node to their "
            "number in a pod": together({"ranks_per_node": 1}, own(device_resource="nvidia.com/gpu")),
            "job_devices: none": AS_WRITTEN,
        },
    ),
    "no kind of devices for ranks": lambda _: (
        pods(devices=None, ranks_per_node=1),
        {
            "set job_kubernetes.device_resource (nvidia.com/gpu, huawei.com/Ascend910)": own(
                device_resource="nvidia.com/gpu"
            ),
            "job_devices: none": AS_WRITTEN,
        },
    ),
    "no number of devices": lambda _: (
        pods({"device_resource": "nvidia.com/gpu"}, devices=None),
        {"set job_ranks_per_node": {"ranks_per_node": 1}},
    ),
    "two kinds of certificates": lambda _: (
        pods({"tls_secret": "tls"}, launcher="mindspore", tls=True, packages=["mindspore"]),
        {"leave out job_tls": {"tls": None}, "job_kubernetes.tls_secret": own(tls_secret=None)},
    ),
    "no claim for recovery": lambda _: (
        pods(**RECOVERY),
        {"set job_kubernetes.recovery_claim": own(recovery_claim="records"), "leave job_recovery out": AS_WRITTEN},
    ),
    "a folder of hosts for recovery": lambda _: (
        pods({"recovery_claim": "records"}, **RECOVERY, recovery_path="/shared"),
        {"leave job_recovery_path out; use the claim job_kubernetes.recovery_claim": AS_WRITTEN},
    ),
    "a network of hosts": lambda _: (
        pods(network="eth1", launcher="mpirun"),
        {
            "leave job_network out; NCCL_SOCKET_IFNAME and GLOO_SOCKET_IFNAME can be set in job_env": {
                "network": None,
                "env": {"NCCL_SOCKET_IFNAME": "eth1", "GLOO_SOCKET_IFNAME": "eth1"},
            }
        },
    ),
    "folders of hosts": lambda _: (
        pods(data=["/data"], launcher="mpirun"),
        {
            "leave job_data out; mount the data with job_kubernetes.volumes": together(
                {"data": None}, own(volumes=[{"path": "/data", "claim": "data"}])
            )
        },
    ),
    # The scripts.
    "a large folder on Kubernetes": lambda _: (
        sized(pods()),
        {
            "leave job_source out and put the scripts into the image": without_source,
            "on a volume: job_kubernetes.code: volume with code_claim and code_path": together(
                without_source, on_a_volume()
            ),
        },
    ),
    "scripts twice": lambda _: (
        pods({"code": "image"}),
        {"leave job_source out": without_source, "set job_kubernetes.code: configmap": own(code="configmap")},
    ),
    "no scripts for a ConfigMap": lambda folder: (
        from_image({"code": "configmap"}),
        {"set job_source": {"source": scripts(folder)}, "job_kubernetes.code: image": own(code="image")},
    ),
    "no volume for scripts": lambda _: (
        from_image({"code": "volume"}),
        {"set job_kubernetes.code_claim and job_kubernetes.code_path": on_a_volume()},
    ),
    # The keys of job_kubernetes.
    "a key that is not for this": lambda _: (
        pods({"servers": 2}),
        {"leave job_kubernetes.servers out": own(servers=None)},
    ),
    "a wrong value": lambda _: (pods({"cpu": "many"}), {"correct job_kubernetes.cpu": own(cpu="4")}),
    "a launcher of another resource": lambda _: (
        pods({"resource": "MPIJob"}, launcher="torchrun"),
        {"set job_launcher: mpirun": AS_WRITTEN, "job_kubernetes.resource: Job": own(resource="Job")},
    ),
}


def scripts(folder):
    (folder / "scripts").mkdir()
    (folder / "scripts/train.py").touch()
    return str(folder / "scripts")
