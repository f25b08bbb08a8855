# SPDX-License-Identifier: Apache-2.0
"""One cluster, asked through the official client. Answers are the API's own JSON; errors are findings."""

from __future__ import annotations

import importlib
import json
import time
from collections.abc import Callable, Mapping, Sequence
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any

from ..trainyard.findings.findings import Finding
from ..trainyard.job.schedulers.kubernetes import findings as faults
from ..trainyard.job.schedulers.kubernetes.pods import LABEL
from ..trainyard.job.schedulers.kubernetes.resources import RESOURCES

# Of an API that is overloaded or far away.
_TIMEOUT_S = 30
# How long the pods of a job may take to go, and how often is looked.
_GONE_S, _POLL_S = 120, 0.5


class ClusterError(Exception):
    """What the cluster could not do, as a finding."""

    def __init__(self, finding: Finding) -> None:
        """Keep the finding, whose text the exception has."""
        super().__init__(f"{finding.found}; expected: {finding.expected}; {finding.action}")
        self.finding = finding


def client_missing() -> Finding:
    """Say that the client is not installed."""
    return Finding(
        "controller",
        "no Python package kubernetes",
        "the official client, which only job_scheduler: kubernetes needs",
        "run make kubernetes, or: pip install --require-hashes -r requirements/kubernetes.txt",
    )


class Cluster:
    """A connection to the cluster that a kubeconfig and a context name."""

    def __init__(self, kubeconfig: str = "", context: str = "", namespace: str = "") -> None:
        """Read the kubeconfig; outside of one, take the service account of the pod that this runs in."""
        try:
            self._client: Any = importlib.import_module("kubernetes.client")
            config: Any = importlib.import_module("kubernetes.config")
        except ImportError:
            raise ClusterError(client_missing()) from None
        path = str(Path(kubeconfig).expanduser()) if kubeconfig else None
        given = self._client.Configuration()
        # Asked again by whoever watches: the client's own patience only hides what is wrong.
        given.retries = 1
        try:
            if path or self._has_kubeconfig(config):
                config.load_kube_config(config_file=path, context=context or None, client_configuration=given)
                named = config.list_kube_config_contexts(config_file=path)
                chosen = next((one for one in named[0] if one["name"] == context), named[1])
                own = (chosen.get("context") or {}).get("namespace")
            else:
                config.load_incluster_config(client_configuration=given)
                own = ""
        except Exception as error:
            # The client raises several kinds, also of YAML and of ssl.
            raise ClusterError(faults.no_configuration(f"{error}")) from None
        self.namespace = namespace or own or "default"
        self.server = str(given.host)
        self._api = self._client.ApiClient(given)
        # By the API's clock, with which the times of its objects can be compared.
        self.now = time.time()

    @staticmethod
    def _has_kubeconfig(config: Any) -> bool:
        named = str(config.kube_config.KUBE_CONFIG_DEFAULT_LOCATION)
        return any(Path(one).expanduser().is_file() for one in named.split(":") if one)

    def _ask(self, doing: str, call: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        """Call the API and return the answer's text. Raises ClusterError."""
        try:
            answer = call(*arguments, _preload_content=False, _request_timeout=_TIMEOUT_S, **options)
        except self._client.ApiException as error:
            raise ClusterError(self._fault(error, doing)) from None
        except Exception as error:
            # Of urllib3, of ssl, of a plugin that fetches credentials.
            raise ClusterError(faults.unreachable(self.server, f"{error}")) from None
        try:
            self.now = parsedate_to_datetime(answer.headers["Date"]).timestamp()
        except (KeyError, TypeError, ValueError):
            self.now = time.time()
        return answer.data.decode("utf-8", "replace")

    def _fault(self, error: Any, doing: str) -> Finding:
        return faults.refused(int(error.status or 0), error.body or error.reason, doing)

    def _found(self, doing: str, call: Callable[..., Any], *arguments: Any, **options: Any) -> dict[str, Any] | None:
        """Return an object; None where there is none of this name."""
        try:
            found: dict[str, Any] = json.loads(self._ask(doing, call, *arguments, **options))
        except ClusterError as error:
            if "(HTTP 404)" in error.finding.found:
                return None
            raise
        return found

    def version(self) -> str:
        """Return the version of the cluster: 1.33."""
        said = json.loads(self._ask("asking for its version", self._client.VersionApi(self._api).get_code))
        return str(said.get("gitVersion", "")).removeprefix("v")

    def serves(self, api_version: str, kind: str) -> bool:
        """Tell whether the cluster knows a kind of resource."""
        group, _, version = api_version.partition("/")
        api = self._client.CustomObjectsApi(self._api)
        known = self._found(f"asking for {api_version}", api.get_api_resources, group, version)
        return known is not None and any(resource["kind"] == kind for resource in known["resources"])

    def may(self, verb: str, group: str, resource: str, subresource: str = "") -> tuple[bool, str]:
        """Ask the cluster whether we may do something in the namespace."""
        review = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {
                "resourceAttributes": {
                    "namespace": self.namespace,
                    "verb": verb,
                    "group": group,
                    "resource": resource,
                    "subresource": subresource,
                }
            },
        }
        api = self._client.AuthorizationV1Api(self._api)
        status = json.loads(self._ask("asking for our rights", api.create_self_subject_access_review, review)).get(
            "status", {}
        )
        return bool(status.get("allowed")), str(status.get("reason") or "")

    def has(self, kind: str, name: str) -> bool:
        """Tell whether an object of the core API is there. One that we may not look at counts as there."""
        core = self._client.CoreV1Api(self._api)
        read = {
            "PersistentVolumeClaim": core.read_namespaced_persistent_volume_claim,
            "Secret": core.read_namespaced_secret,
            "ServiceAccount": core.read_namespaced_service_account,
        }[kind]
        try:
            return self._found(f"looking for {kind} {name}", read, name, self.namespace) is not None
        except ClusterError as error:
            if "(HTTP 403)" in error.finding.found:
                return True
            raise

    def resource(self, settings: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return the job's resource; None where it is gone."""
        read, place = self._method("read", settings["api_version"], settings["resource"])
        return self._found(f"reading {settings['resource']} {settings['name']}", read, **place, name=settings["name"])

    def create(self, manifest: Mapping[str, Any]) -> None:
        """Make an object. Raises ClusterError, also where there is one of this name."""
        kind, name = manifest["kind"], manifest["metadata"]["name"]
        version = manifest["apiVersion"]
        call, place = self._method("create", version, kind)
        self._ask(f"making {kind} {name}", call, **place, body=manifest)

    def delete(self, version: str, kind: str, name: str) -> None:
        """Remove an object, and what it made before it; returns when it is gone. Raises ClusterError.

        Whoever may not look at a kind has made none of it: a launch asks for that right first.
        """
        doing = f"removing {kind} {name}"
        remove, place = self._method("delete", version, kind)
        read, _ = self._method("read", version, kind)
        try:
            gone = self._found(doing, remove, **place, name=name, propagation_policy="Foreground") is None
            deadline = time.monotonic() + _GONE_S
            while not gone and self._found(doing, read, **place, name=name) is not None:
                if time.monotonic() > deadline:
                    raise ClusterError(faults.stays(kind, name, self.namespace, _GONE_S))
                time.sleep(_POLL_S)
        except ClusterError as error:
            if "(HTTP 403)" not in error.finding.found:
                raise

    def _method(self, verb: str, version: str, kind: str) -> tuple[Callable[..., Any], dict[str, str]]:
        """Return the client's function that does this to objects of a kind, and where: all but name and body."""
        if "/" not in version:
            of = {"Secret": "secret", "ConfigMap": "config_map", "Service": "service"}[kind]
            call = getattr(self._client.CoreV1Api(self._api), f"{verb}_namespaced_{of}")
            return call, {"namespace": self.namespace}
        # Also for the plain Job: this way takes any group, and manifests as they are.
        group, _, short = version.partition("/")
        done = {"read": "get"}.get(verb, verb)
        call = getattr(self._client.CustomObjectsApi(self._api), f"{done}_namespaced_custom_object")
        place = {"namespace": self.namespace, "group": group, "version": short, "plural": RESOURCES[kind].plural}
        return call, place

    def pods(self, name: str) -> list[dict[str, Any]]:
        """Return the pods of a job."""
        core = self._client.CoreV1Api(self._api)
        said = self._ask("listing pods", core.list_namespaced_pod, self.namespace, label_selector=f"{LABEL}={name}")
        return list(json.loads(said)["items"])

    def warnings(self) -> list[dict[str, Any]]:
        """Return the warnings of the namespace; none where we may not read events."""
        core = self._client.CoreV1Api(self._api)
        try:
            said = self._ask(
                "listing events", core.list_namespaced_event, self.namespace, field_selector="type=Warning", limit=500
            )
        except ClusterError:
            return []
        return list(json.loads(said)["items"])

    def log(self, pod: str, container: str, **options: Any) -> str:
        """Return the log of a container; "" where it has none (yet)."""
        core = self._client.CoreV1Api(self._api)
        try:
            said = self._ask(
                f"reading the log of {pod}",
                core.read_namespaced_pod_log,
                pod,
                self.namespace,
                container=container,
                **options,
            )
        except ClusterError as error:
            if any(f"(HTTP {status})" in error.finding.found for status in (400, 404)):
                return ""
            raise
        return str(said)


def preflight(cluster: Cluster, kind: str, needs: Sequence[Mapping[str, str]], made: Sequence[str]) -> list[Finding]:
    """Find what would keep the cluster from running the job: kind of resource, rights, objects that are not there.

    `made` are the other kinds of objects that the launch makes: secrets.
    """
    resource = RESOURCES[kind]
    if not cluster.serves(resource.api_version, kind):
        return [faults.no_operator(kind)]
    group = resource.group
    wanted = [
        *((verb, group, resource.plural, "") for verb in ("create", "get", "delete")),
        ("list", "", "pods", ""),
        ("get", "", "pods", "log"),
        # Who may make them and not look at them could not remove them either.
        *((verb, "", plural, "") for plural in made for verb in ("create", "get", "delete")),
    ]
    findings = []
    for verb, of, plural, part in wanted:
        allowed, reason = cluster.may(verb, of, plural, part)
        if not allowed:
            what = f"{plural}{'/' + part if part else ''}{'.' + of if of and of != 'batch' else ''}"
            findings.append(faults.no_right(verb, what, cluster.namespace, reason))
    findings += [
        faults.missing(need["kind"], need["name"], cluster.namespace, need["variable"])
        for need in needs
        if not cluster.has(need["kind"], need["name"])
    ]
    return findings
