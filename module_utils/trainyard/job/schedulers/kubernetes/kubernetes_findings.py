# SPDX-License-Identifier: Apache-2.0
"""Findings for errors of the API, with the cluster's own message and an action."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from typing import Any

from ....base.findings import Finding
from .resources import RESOURCES


def message_of(body: Any) -> str:
    """Return the message of an error's body, a Status of the API, or the body as text."""
    if isinstance(body, bytes):
        body = body.decode("utf-8", "replace")
    status = body
    with contextlib.suppress(ValueError, RecursionError):
        status = json.loads(body) if isinstance(body, str) else body
    if isinstance(status, Mapping) and status.get("message"):
        return " ".join(str(status["message"]).split())
    return " ".join(str(body or "").split())[:300]


def unreachable(server: str, reason: str) -> Finding:
    """Return the finding for an API that does not answer."""
    found = f"no answer from {server or 'any API server'}: {' '.join(reason.split())[:300]}"
    action = "check job_kubeconfig and job_kube_context, the network and a VPN; try: kubectl version"
    return Finding("cluster", found, "the API of a Kubernetes cluster", action)


def no_configuration(reason: str) -> Finding:
    """Return the finding for a missing or unusable kubeconfig."""
    action = "set job_kubeconfig and job_kube_context, or KUBECONFIG in the environment"
    expected = "a kubeconfig with the context of the cluster"
    return Finding("job_kubeconfig", " ".join(reason.split())[:300], expected, action)


# Expectation and action for the HTTP statuses of the API.
_STATUSES = {
    401: ("valid credentials for the cluster", "log in again, or use a kubeconfig with a valid token"),
    403: (
        "permission for this",
        "ask the administrator of the cluster for the rights of docs/kubernetes.md, or set your own job_namespace",
    ),
    404: ("the objects that the job names", "check job_namespace and the names of claims and Secrets in the job file"),
    409: ("no object of this name", "start the job again: each run has its own name"),
    422: ("a valid manifest", "correct the variable in the message"),
    429: ("an API that is not overloaded", "wait a moment, then start the job again"),
}


def api_error(status: int, body: Any, doing: str) -> Finding:
    """Return the finding for an error of the API with this HTTP status."""
    message = message_of(body) or f"HTTP status {status}"
    expected, action = _STATUSES.get(status, ("an answer", "check the cluster's own events and logs"))
    return Finding("cluster", f"{doing}: {message} (HTTP {status})", expected, action)


def not_removed(kind: str, name: str, namespace: str, waited_s: int) -> Finding:
    """Return the finding for an object that still exists after its removal."""
    found = f"{kind} {name} is still in namespace {namespace} {waited_s} s after it was removed"
    action = f"find what holds it: kubectl -n {namespace} describe {kind.lower()} {name}"
    return Finding("cluster", found, "an object that is removed with its pods", action)


def no_operator(kind: str) -> Finding:
    """Return the finding for a resource that the cluster does not know."""
    resource = RESOURCES[kind]
    found = f"a cluster that does not know {kind} ({resource.api_version})"
    # A plain Job has other launchers than those of MPI and of MindSpore's operator.
    launcher = {"MPIJob": "job_launcher: torchrun and ", "MSJob": "job_launcher: msrun and "}.get(kind, "")
    action = f"have it installed, or set {launcher}job_kubernetes.resource: Job, which needs no operator"
    return Finding("operator", found, f"{resource.operator}, which creates its pods", action)


def no_right(verb: str, what: str, namespace: str, reason: str) -> Finding:
    """Return the finding for a missing right of the user."""
    found = f"no right to {verb} {what} in namespace {namespace}" + (f": {reason}" if reason else "")
    action = "ask the administrator of the cluster for them, or set job_namespace"
    return Finding("rights", found, "the rights of docs/kubernetes.md", action)


def missing(kind: str, name: str, namespace: str, variable: str) -> Finding:
    """Return the finding for a missing object that the job file names."""
    found = f"no {kind} {name} in namespace {namespace}"
    return Finding(variable, found, "an existing object", f"create it, or correct {variable}")
