# SPDX-License-Identifier: Apache-2.0
"""The variables of a job file that are for Kubernetes only, checked and typed: docs/kubernetes.md describes them."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ....findings.findings import Finding
from ...file import tls
from ...file.job import Job
from .names import is_label
from .resources import IMPLIED, RESOURCES

CODE = ("configmap", "volume", "image")
QUEUE_SYSTEMS = ("kueue", "volcano")
PULL_POLICIES = ("", "Always", "IfNotPresent", "Never")
CLEAN_POLICIES = ("None", "Running", "All")
SUCCESS_POLICIES = ("AllWorkers", "")

# Kubernetes' quantities, as the API checks them.
_QUANTITY = re.compile(r"\d+(?:\.\d+)?(?:[eE][+-]?\d+|m|[kMGTPE]|[KMGTPE]i)?")
_LABEL_KEY = re.compile(r"(?:[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?/)?[A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")
_LABEL_VALUE = re.compile(r"(?:[A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?)?")
_EXTENDED = re.compile(r"[a-z0-9](?:[a-z0-9.-]*[a-z0-9])?/[A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")


@dataclass(frozen=True)
class Volume:
    """A volume of the pods: a claim or a folder of the node, and where it is mounted."""

    path: str
    claim: str = ""
    host_path: str = ""
    read_only: bool = False


@dataclass(frozen=True)
class Settings:
    """What only Kubernetes needs to know of a job."""

    image: str
    kubeconfig: str
    context: str
    namespace: str
    resource: str
    code: str
    code_claim: str
    code_path: str
    image_pull_policy: str
    image_pull_secrets: tuple[str, ...]
    service_account: str
    cpu: str
    memory: str
    device_resource: str
    rdma_resource: str
    shared_memory: str
    host_network: bool
    node_selector: Mapping[str, str]
    tolerations: tuple[Mapping[str, Any], ...]
    volumes: tuple[Volume, ...]
    queue: str
    queue_system: str
    priority_class: str
    clean_pods: str
    success: str
    keep_s: int | None
    tls_secret: str
    recovery_claim: str
    ssh_mount_path: str


DEFAULTS: Mapping[str, Any] = {
    "resource": "",
    "code": "",
    "code_claim": "",
    "code_path": "",
    "image_pull_policy": "",
    "image_pull_secrets": [],
    "service_account": "",
    "cpu": "",
    "memory": "",
    "device_resource": "",
    "rdma_resource": "",
    "shared_memory": "",
    "host_network": False,
    "node_selector": {},
    "tolerations": [],
    "volumes": [],
    "queue": "",
    "queue_system": "kueue",
    "priority_class": "",
    "clean_pods": "None",
    "success": "AllWorkers",
    "keep_s": None,
    "tls_secret": "",
    "recovery_claim": "",
    "ssh_mount_path": "/root/.ssh",
}
_TEXTS = tuple(name for name, value in DEFAULTS.items() if isinstance(value, str))


def parse(job: Job) -> tuple[Settings | None, list[Finding]]:
    """Read the job's options for Kubernetes; None with findings where they are wrong."""
    findings: list[Finding] = []
    launcher, variables = job.launcher, job.kubernetes

    def wrong(key: str, found: Any, expected: str, action: str = "") -> None:
        name = key if key.startswith("job_") else f"job_kubernetes.{key}"
        findings.append(Finding(name, str(found), expected, action or f"correct {name}"))

    table = variables.options or {}
    if not isinstance(table, Mapping):
        wrong(key="job_kubernetes", found=f"a {type(table).__name__}", expected="a dictionary as in docs/kubernetes.md")
        return None, findings
    for key in sorted(set(map(str, table)) - set(DEFAULTS)):
        near = difflib.get_close_matches(key, DEFAULTS, n=1)
        wrong(
            key=key,
            found="an unknown key",
            expected="the keys of docs/kubernetes.md",
            action=f"did you mean {near[0]}?" if near else "",
        )
    values: dict[str, Any] = {
        key: default if table.get(key) is None else table[key] for key, default in DEFAULTS.items()
    }
    for key in _TEXTS:
        if isinstance(values[key], (Mapping, list, tuple)):
            wrong(key=key, found=f"a {type(values[key]).__name__}", expected="text")
            values[key] = ""
        values[key] = str(values[key])

    if not re.fullmatch(r"[^\s\x00]+", variables.image):
        wrong(
            key="job_image",
            found=repr(variables.image),
            expected="the image that the pods run, such as registry.example/pytorch:2.13",
        )
    elif variables.image.endswith(":latest"):
        wrong(
            key="job_image",
            found=variables.image,
            expected="a tag that stays, or a digest: the pods of one job pull at several times",
        )
    if variables.namespace and not is_label(variables.namespace):
        wrong(key="job_namespace", found=repr(variables.namespace), expected="lower-case letters, digits and hyphens")

    resource = values["resource"] or IMPLIED.get(launcher, "Job")
    if resource not in RESOURCES:
        wrong(key="resource", found=repr(resource), expected="one of " + ", ".join(RESOURCES))
    elif launcher not in RESOURCES[resource].launchers:
        takes = RESOURCES[resource].launchers
        wrong(
            key="job_launcher",
            found=f"{launcher} with job_kubernetes.resource: {resource}",
            expected=f"{' or '.join(takes)} in a {resource}",
            action=f"set job_launcher: {takes[0]}, or job_kubernetes.resource: {IMPLIED.get(launcher, 'Job')}",
        )

    code = values["code"] or ("configmap" if job.source else "image")
    _code_findings(wrong, code, values, bool(job.source))
    for key, choices in (
        ("image_pull_policy", PULL_POLICIES),
        ("queue_system", QUEUE_SYSTEMS),
        ("clean_pods", CLEAN_POLICIES),
        ("success", SUCCESS_POLICIES),
    ):
        if values[key] not in choices:
            wrong(key=key, found=repr(values[key]), expected="one of " + ", ".join(repr(choice) for choice in choices))
    for key in ("cpu", "memory", "shared_memory"):
        if values[key] and not _QUANTITY.fullmatch(values[key]):
            wrong(key=key, found=repr(values[key]), expected="a quantity of Kubernetes such as 500m, 4 or 16Gi")
    for key in ("device_resource", "rdma_resource"):
        if values[key] and not _EXTENDED.fullmatch(values[key]):
            wrong(key=key, found=repr(values[key]), expected="the name of an extended resource such as nvidia.com/gpu")
    for key in ("service_account", "tls_secret", "recovery_claim", "code_claim", "queue", "priority_class"):
        if values[key] and not all(is_label(part) for part in values[key].split(".")):
            wrong(
                key=key,
                found=repr(values[key]),
                expected="a name in the cluster: lower-case letters, digits and hyphens",
            )
    if resource == "Job" and values["queue"] and values["queue_system"] == "volcano":
        wrong(key="queue_system", found="volcano with a plain Job", expected="kueue, which holds a Job back as a whole")
    if resource == "MSJob" and values["queue"] and values["queue_system"] == "kueue":
        # Its pods would start at once, past the queue.
        wrong(
            key="queue_system",
            found="kueue with an MSJob, which Kueue does not know",
            expected="volcano",
            action="set queue_system: volcano",
        )
    if not isinstance(values["host_network"], bool):
        wrong(key="host_network", found=repr(values["host_network"]), expected="true or false")
    keep = values["keep_s"]
    if keep is not None and (isinstance(keep, bool) or not isinstance(keep, int) or keep < 0):
        wrong(key="keep_s", found=repr(keep), expected="seconds after which the cluster removes the ended job")
        keep = None

    secrets = values["image_pull_secrets"]
    if not isinstance(secrets, (list, tuple)) or not all(isinstance(name, str) and name for name in secrets):
        wrong(key="image_pull_secrets", found=repr(secrets), expected="a list of names of Secrets")
        secrets = []
    selector = values["node_selector"]
    if not isinstance(selector, Mapping) or not all(
        _LABEL_KEY.fullmatch(str(key)) and _LABEL_VALUE.fullmatch(_plain(value)) for key, value in selector.items()
    ):
        wrong(key="node_selector", found=repr(selector), expected="labels of nodes as NAME: value lines")
        selector = {}
    tolerations = values["tolerations"]
    if not isinstance(tolerations, (list, tuple)) or not all(isinstance(item, Mapping) for item in tolerations):
        wrong(
            key="tolerations",
            found=repr(tolerations),
            expected="a list of dictionaries with key, operator, value and effect",
        )
        tolerations = []
    volumes = _volumes(wrong, values["volumes"])
    for key in ("ssh_mount_path", "code_path"):
        if values[key] and not values[key].startswith("/"):
            wrong(key=key, found=repr(values[key]), expected="an absolute path in the pods")
    if values["tls_secret"] and launcher not in tls.LAUNCHERS:
        wrong(
            key="tls_secret",
            found=f"{values['tls_secret']} with job_launcher: {launcher}",
            expected=" or ".join(tls.LAUNCHERS),
        )
    if values["recovery_claim"] and resource != "MSJob":
        wrong(
            key="recovery_claim",
            found=f"{values['recovery_claim']} with a {resource}",
            expected="an MSJob, whose scheduler recovers",
        )

    if findings:
        return None, findings
    rest = {key: values[key] for key in _TEXTS if key not in ("resource", "code", "code_path")}
    return Settings(
        image=variables.image,
        kubeconfig=variables.kubeconfig,
        context=variables.context,
        namespace=variables.namespace,
        resource=resource,
        code=code,
        code_path=values["code_path"],
        image_pull_secrets=tuple(secrets),
        host_network=values["host_network"],
        node_selector={str(key): _plain(value) for key, value in selector.items()},
        tolerations=tuple(dict(item) for item in tolerations),
        volumes=volumes,
        keep_s=keep,
        **rest,
    ), []


def _plain(value: Any) -> str:
    """Write a value of YAML as the text that a label needs: true, not True."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _code_findings(wrong: Any, code: str, values: Mapping[str, Any], source: bool) -> None:
    if code not in CODE:
        wrong(key="code", found=repr(code), expected="one of " + ", ".join(CODE))
    elif code == "configmap" and not source:
        wrong(
            key="code", found="configmap without job_source", expected="job_source, the folder that becomes a ConfigMap"
        )
    elif code != "configmap" and source:
        wrong(
            key="code",
            found=f"{code} with job_source",
            expected=f"no job_source: the scripts are in the {code} already",
            action="leave job_source out, or set job_kubernetes.code: configmap",
        )
    elif code == "volume" and not (values["code_claim"] and values["code_path"]):
        wrong(
            key="code",
            found="volume without a volume",
            expected="code_claim, the claim, and code_path, where it is mounted",
        )
    if code != "volume" and values["code_claim"]:
        wrong(key="code_claim", found=f"{values['code_claim']} with code: {code}", expected="code: volume")


def _volumes(wrong: Any, given: Any) -> tuple[Volume, ...]:
    volumes = []
    for item in given if isinstance(given, (list, tuple)) else [given]:
        keys = set(item) if isinstance(item, Mapping) else set()
        sources = [str(item[key]) for key in ("claim", "host_path") if item.get(key)] if keys else []
        if (
            len(sources) != 1
            or keys - {"path", "claim", "host_path", "read_only"}
            or not str(item.get("path", "")).startswith("/")
            or not isinstance(item.get("read_only", False), bool)
            or (item.get("claim") and not all(is_label(part) for part in sources[0].split(".")))
            or (item.get("host_path") and not sources[0].startswith("/"))
        ):
            wrong(
                key="volumes",
                found=repr(item),
                expected="{path: where it is mounted, claim: NAME or host_path: /PATH, read_only: bool}",
            )
            continue
        volumes.append(
            Volume(
                path=str(item["path"]),
                claim=str(item.get("claim") or ""),
                host_path=str(item.get("host_path") or ""),
                read_only=item.get("read_only", False),
            )
        )
    return tuple(volumes)
