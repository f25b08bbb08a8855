# SPDX-License-Identifier: Apache-2.0
"""Check and type the job options that are for Kubernetes only; docs/kubernetes.md describes them."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, field, fields
from typing import Any

from ....base.findings import Finding
from ....base.visible import type_name
from ...file import mindspore_tls
from ...file.job import Job
from .names import is_label
from .resources import IMPLIED, RESOURCES

CODE = ("configmap", "volume", "image")

# Kubernetes' quantities, as the API checks them.
_QUANTITY = re.compile(r"\d+(?:\.\d+)?(?:[eE][+-]?\d+|m|[kMGTPE]|[KMGTPE]i)?")
_LABEL_KEY = re.compile(r"(?:[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?/)?[A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")
_LABEL_VALUE = re.compile(r"(?:[A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?)?")
_EXTENDED = re.compile(r"[a-z0-9](?:[a-z0-9.-]*[a-z0-9])?/[A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")


@dataclass(frozen=True)
class Volume:
    """A volume of the pods: a claim or a folder of the node, and the path where it is mounted."""

    path: str
    claim: str = ""
    host_path: str = ""
    read_only: bool = False


@dataclass(frozen=True)
class Settings:
    """The options of a job for Kubernetes. Those with a default are the keys of job_kubernetes."""

    image: str
    kubeconfig: str
    context: str
    namespace: str
    resource: str = ""
    code: str = ""
    code_claim: str = ""
    code_path: str = ""
    image_pull_policy: str = ""
    image_pull_secrets: tuple[str, ...] = ()
    service_account: str = ""
    cpu: str = ""
    memory: str = ""
    device_resource: str = ""
    rdma_resource: str = ""
    shared_memory: str = ""
    host_network: bool = False
    node_selector: Mapping[str, str] = field(default_factory=dict)
    tolerations: tuple[Mapping[str, Any], ...] = ()
    volumes: tuple[Volume, ...] = ()
    priority_class: str = ""
    clean_pods: str = "None"
    success: str = "AllWorkers"
    servers: int = 0
    keep_s: int | None = None
    tls_secret: str = ""
    recovery_claim: str = ""
    ssh_mount_path: str = "/root/.ssh"


DEFAULTS: Mapping[str, Any] = {
    **{each.name: each.default for each in fields(Settings) if each.default is not MISSING},
    "node_selector": {},
}
_TEXTS = tuple(name for name, value in DEFAULTS.items() if isinstance(value, str))


def _is_list(value: Any, is_item: Callable[[Any], bool]) -> bool:
    return isinstance(value, (list, tuple)) and all(map(is_item, value))


def _matches(pattern: re.Pattern[str]) -> Callable[[Any], bool]:
    return lambda value: not value or bool(pattern.fullmatch(value))


def _is_name(value: str) -> bool:
    return not value or all(is_label(part) for part in value.split("."))


def _is_selector(value: Any) -> bool:
    return isinstance(value, Mapping) and all(
        _LABEL_KEY.fullmatch(str(key)) and _LABEL_VALUE.fullmatch(_label(text)) for key, text in value.items()
    )


def _is_count(value: Any) -> bool:
    return value is None or (isinstance(value, int) and not isinstance(value, bool) and value >= 0)


# The keys, the test that their value must pass, and the expectation if it does not.
_CHECKS: tuple[tuple[str, Callable[[Any], bool], str], ...] = (
    ("cpu memory shared_memory", _matches(_QUANTITY), "a quantity of Kubernetes such as 500m, 4 or 16Gi"),
    ("device_resource rdma_resource", _matches(_EXTENDED), "the name of an extended resource such as nvidia.com/gpu"),
    (
        "service_account tls_secret recovery_claim code_claim priority_class",
        _is_name,
        "a name in the cluster: lower-case letters, digits and hyphens",
    ),
    ("ssh_mount_path code_path", lambda value: not value or value.startswith("/"), "an absolute path in the pods"),
    ("host_network", lambda value: isinstance(value, bool), "true or false"),
    ("keep_s", _is_count, "seconds after which the cluster removes the ended job"),
    ("servers", _is_count, "the number of parameter servers, or 0"),
    (
        "image_pull_secrets",
        lambda value: _is_list(value, lambda name: isinstance(name, str) and bool(name)),
        "a list of names of Secrets",
    ),
    ("node_selector", _is_selector, "labels of nodes as NAME: value lines"),
    (
        "tolerations",
        lambda value: _is_list(value, lambda item: isinstance(item, Mapping)),
        "a list of dictionaries with key, operator, value and effect",
    ),
)
_CHOICES: Mapping[str, tuple[str, ...]] = {
    "resource": tuple(RESOURCES),
    "code": CODE,
    "image_pull_policy": ("", "Always", "IfNotPresent", "Never"),
    "clean_pods": ("None", "Running", "All"),
    "success": ("AllWorkers", ""),
}


def parse(job: Job) -> tuple[Settings | None, list[Finding]]:
    """Check the job's options for Kubernetes. Returns None and findings where they are wrong."""
    options = job.kubernetes.options or {}
    if not isinstance(options, Mapping):
        found = f"a {type_name(options)}"
        return None, [_problem("job_kubernetes", found, "a dictionary as in docs/kubernetes.md")]
    values = {key: default if options.get(key) is None else options[key] for key, default in DEFAULTS.items()}
    findings = _unknown_keys(options)
    for key in _TEXTS:
        if isinstance(values[key], (Mapping, list, tuple)):
            findings.append(_problem(key, f"a {type_name(values[key])}", "text"))
            values[key] = ""
        values[key] = str(values[key])
    values["resource"] = values["resource"] or IMPLIED.get(job.launcher, "Job")
    values["code"] = values["code"] or ("configmap" if job.source else "image")
    findings += [
        *_image_findings(job),
        *_value_findings(values),
        *_launcher_findings(values, job.launcher),
        *_code_findings(values, bool(job.source)),
    ]
    volumes = values["volumes"] if isinstance(values["volumes"], (list, tuple)) else [values["volumes"]]
    findings += [
        _problem("volumes", repr(item), "{path: where it is mounted, claim: NAME or host_path: /PATH, read_only: bool}")
        for item in volumes
        if not _is_volume(item)
    ]
    if findings:
        return None, findings
    values["image_pull_secrets"] = tuple(values["image_pull_secrets"])
    values["node_selector"] = {str(key): _label(value) for key, value in values["node_selector"].items()}
    values["tolerations"] = tuple(dict(item) for item in values["tolerations"])
    values["volumes"] = tuple(
        Volume(str(item["path"]), item.get("claim") or "", item.get("host_path") or "", item.get("read_only", False))
        for item in volumes
    )
    access = job.kubernetes
    return Settings(access.image, access.kubeconfig, access.context, access.namespace, **values), []


def _problem(key: str, found: str, expected: str, action: str = "") -> Finding:
    name = key if key.startswith("job_") else f"job_kubernetes.{key}"
    return Finding(name, found, expected, action or f"correct {name}")


def _useless(key: str, found: str, expected: str) -> Finding:
    return _problem(key, found, expected, f"leave job_kubernetes.{key} out")


def _unknown_keys(options: Mapping[str, Any]) -> list[Finding]:
    unknown = sorted(set(map(str, options)) - set(DEFAULTS))
    near = {key: "".join(difflib.get_close_matches(key, DEFAULTS, n=1)) for key in unknown}
    expected = "the keys of docs/kubernetes.md"
    return [_problem(key, "an unknown key", expected, name and f"did you mean {name}?") for key, name in near.items()]


def _image_findings(job: Job) -> list[Finding]:
    image, namespace, findings = job.kubernetes.image, job.kubernetes.namespace, []
    if not re.fullmatch(r"[^\s\x00]+", image):
        expected = "the image that the pods run, such as registry.example/pytorch:2.13"
        findings.append(_problem("job_image", repr(image), expected))
    elif image.endswith(":latest"):
        expected = "a tag that does not move, or a digest, as the pods pull the image at different times"
        findings.append(_problem("job_image", image, expected))
    if namespace and not is_label(namespace):
        findings.append(_problem("job_namespace", repr(namespace), "lower-case letters, digits and hyphens"))
    return findings


def _value_findings(values: Mapping[str, Any]) -> list[Finding]:
    findings = [
        _problem(key, repr(values[key]), "one of " + ", ".join(choice or '""' for choice in choices))
        for key, choices in _CHOICES.items()
        if values[key] not in choices
    ]
    for keys, is_valid, expected in _CHECKS:
        findings += [_problem(key, repr(values[key]), expected) for key in keys.split() if not is_valid(values[key])]
    return findings


def _launcher_findings(values: Mapping[str, Any], launcher: str) -> list[Finding]:
    resource, findings = values["resource"], []
    launchers = RESOURCES[resource].launchers if resource in RESOURCES else (launcher,)
    if launcher not in launchers:
        found = f"{launcher} with job_kubernetes.resource: {resource}"
        implied = IMPLIED.get(launcher, "Job")
        action = f"set job_launcher: {launchers[0]}, or job_kubernetes.resource: {implied}"
        findings.append(_problem("job_launcher", found, f"{' or '.join(launchers)} in a {resource}", action))
    if values["tls_secret"] and launcher not in mindspore_tls.LAUNCHERS:
        found = f"{values['tls_secret']} with job_launcher: {launcher}"
        findings.append(_useless("tls_secret", found, " or ".join(mindspore_tls.LAUNCHERS)))
    if values["recovery_claim"] and resource != "MSJob":
        found = f"{values['recovery_claim']} with a {resource}"
        findings.append(_useless("recovery_claim", found, "an MSJob, whose scheduler recovers"))
    if values["servers"] and resource != "MSJob":
        found = f"{values['servers']} with a {resource}"
        findings.append(_useless("servers", found, "an MSJob, which alone has parameter servers"))
    return findings


def _code_findings(values: Mapping[str, Any], source: bool) -> list[Finding]:
    code, claim, findings = values["code"], values["code_claim"], []
    if code == "configmap" and not source:
        expected = "job_source, the folder that becomes a ConfigMap"
        action = "set job_source, or job_kubernetes.code: image"
        findings.append(_problem("code", "configmap without job_source", expected, action))
    elif code in ("volume", "image") and source:
        expected = f"no job_source: the scripts are in the {code} already"
        action = "leave job_source out, or set job_kubernetes.code: configmap"
        findings.append(_problem("code", f"{code} with job_source", expected, action))
    elif code == "volume" and not (claim and values["code_path"]):
        expected = "code_claim, the claim, and code_path, where it is mounted"
        action = "set job_kubernetes.code_claim and job_kubernetes.code_path"
        findings.append(_problem("code", "volume without a volume", expected, action))
    if code != "volume" and claim:
        findings.append(_useless("code_claim", f"{claim} with code: {code}", "code: volume"))
    return findings


def _label(value: Any) -> str:
    """Return a YAML value as the text of a label: true, not True."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _is_volume(item: Any) -> bool:
    if not isinstance(item, Mapping) or set(item) - {"path", "claim", "host_path", "read_only"}:
        return False
    claim, host_path = item.get("claim") or "", item.get("host_path") or ""
    return (
        isinstance(claim, str)
        and isinstance(host_path, str)
        and bool(claim) != bool(host_path)
        and str(item.get("path", "")).startswith("/")
        and isinstance(item.get("read_only", False), bool)
        and _is_name(claim)
        and (not host_path or host_path.startswith("/"))
    )
