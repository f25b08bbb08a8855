# SPDX-License-Identifier: Apache-2.0
"""The API's answers as findings: what the cluster said, and what to do about it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ....findings.findings import Finding
from .resources import RESOURCES


def message_of(body: Any) -> str:
    """Return the words of an error's body, a Status of the API; its text where it is none."""
    if isinstance(body, bytes):
        body = body.decode("utf-8", "replace")
    try:
        status = json.loads(body) if isinstance(body, str) else body
    except (ValueError, RecursionError):
        return " ".join(str(body).split())[:300]
    if isinstance(status, Mapping) and status.get("message"):
        return " ".join(str(status["message"]).split())
    return " ".join(str(body or "").split())[:300]


def unreachable(server: str, reason: str) -> Finding:
    """Say that nobody answers where the kubeconfig says the API is."""
    return Finding(
        "cluster",
        f"no answer from {server or 'any API server'}: {' '.join(reason.split())[:300]}",
        "the API of a Kubernetes cluster",
        "check job_kubeconfig and job_kube_context, the network and a VPN; try: kubectl version",
    )


def no_configuration(reason: str) -> Finding:
    """Say that there is no access to any cluster."""
    return Finding(
        "job_kubeconfig",
        " ".join(reason.split())[:300],
        "a kubeconfig with the context of the cluster",
        "set job_kubeconfig and job_kube_context, or KUBECONFIG in the environment",
    )


def refused(status: int, body: Any, doing: str) -> Finding:
    """Turn an error of the API into a finding, by its HTTP status."""
    said = message_of(body) or f"HTTP status {status}"
    expected, action = {
        401: ("credentials that the cluster knows", "log in again, or take a kubeconfig with a valid token"),
        403: (
            "leave to do so",
            "ask who runs the cluster for the rights of docs/kubernetes.md, or name your own job_namespace",
        ),
        404: ("what the job asks for", "check job_namespace and the names of claims and Secrets in the job file"),
        409: ("no object of this name", "start the job again: each run has a name of its own"),
        422: ("a manifest that the cluster takes", "correct the variable that the message is about"),
        429: ("an API that is not overloaded", "wait a moment, then start the job again"),
    }.get(status, ("an answer", "look at the cluster's own events and logs"))
    return Finding("cluster", f"{doing}: {said} (HTTP {status})", expected, action)


def stays(kind: str, name: str, namespace: str, waited_s: int) -> Finding:
    """Say that an object is still there, although it was removed."""
    return Finding(
        "cluster",
        f"{kind} {name} is still in namespace {namespace} {waited_s} s after it was removed",
        "an object that goes with its pods",
        f"look at what holds it: kubectl -n {namespace} describe {kind.lower()} {name}",
    )


def no_operator(kind: str) -> Finding:
    """Say that the cluster does not know the resource."""
    resource = RESOURCES[kind]
    return Finding(
        "operator",
        f"a cluster that does not know {kind} ({resource.api_version})",
        f"{resource.operator}, which makes pods of it",
        "have it installed, or set job_kubernetes.resource: Job, which needs no operator",
    )


def no_right(verb: str, what: str, namespace: str, reason: str) -> Finding:
    """Say that the user may not do what the job needs."""
    return Finding(
        "rights",
        f"no right to {verb} {what} in namespace {namespace}" + (f": {reason}" if reason else ""),
        "the rights of docs/kubernetes.md",
        "ask who runs the cluster for them, or set job_namespace",
    )


def missing(kind: str, name: str, namespace: str, variable: str) -> Finding:
    """Say that an object that the job file names is not there."""
    return Finding(
        variable,
        f"no {kind} {name} in namespace {namespace}",
        "one that is there before the job",
        f"make it, or correct {variable}",
    )
