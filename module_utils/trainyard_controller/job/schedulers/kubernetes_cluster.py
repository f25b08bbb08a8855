# SPDX-License-Identifier: Apache-2.0
"""Access to a cluster through the official client. Answers are the API's own JSON; errors are findings."""

from __future__ import annotations

import contextlib
import importlib
import json
import time
from collections.abc import Callable, Mapping, Sequence
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any

from ....trainyard.base.findings import Finding
from ....trainyard.job.schedulers.kubernetes import kubernetes_findings
from ....trainyard.job.schedulers.kubernetes.pods import LABEL
from ....trainyard.job.schedulers.kubernetes.resources import RESOURCES

# Time limit of a request, in seconds.
_TIMEOUT_S = 30
# Time limit for the removal of an object, and the polling interval, in seconds.
_REMOVAL_S, _POLL_S = 120, 0.5
# Codes of WebSocket frames: with data, and the last one (RFC 6455). Upper bound for what a command prints, in bytes.
_DATA, _CLOSE = (1, 2), 8
MAX_PRINTED = 600 << 20


class ClusterError(Exception):
    """An error of the cluster: its finding, and its HTTP status (0 without a response)."""

    def __init__(self, finding: Finding, status: int = 0) -> None:
        """Store finding and status."""
        super().__init__(f"{finding.found}; expected: {finding.expected}; {finding.action}")
        self.finding, self.status = finding, status


_NO_CLIENT = Finding(
    "controller",
    "no Python package kubernetes",
    "the official client, which only job_scheduler: kubernetes needs",
    "run make kubernetes, or: pip install --require-hashes -r requirements/kubernetes.txt",
)


class Cluster:
    """A connection to the cluster that a kubeconfig and a context name."""

    def __init__(self, kubeconfig: str = "", context: str = "", namespace: str = "") -> None:
        """Read the kubeconfig; without one, use the service account of the pod that this runs in."""
        try:
            self._client: Any = importlib.import_module("kubernetes.client")
            config: Any = importlib.import_module("kubernetes.config")
        except ImportError:
            raise ClusterError(_NO_CLIENT) from None
        path = str(Path(kubeconfig).expanduser()) if kubeconfig else None
        configuration = self._client.Configuration()
        # Callers repeat their requests; retries of the client would only hide errors.
        configuration.retries = 1
        try:
            if path or self._has_kubeconfig(config):
                config.load_kube_config(config_file=path, context=context or None, client_configuration=configuration)
                named = config.list_kube_config_contexts(config_file=path)
                chosen = next((one for one in named[0] if one["name"] == context), named[1])
                own = (chosen.get("context") or {}).get("namespace")
            else:
                config.load_incluster_config(client_configuration=configuration)
                own = ""
        except Exception as error:
            # The client raises several kinds of errors, also of YAML and ssl.
            raise ClusterError(kubernetes_findings.no_configuration(f"{error}")) from None
        self.namespace = namespace or own or "default"
        self.server = str(configuration.host)
        self._configuration = configuration
        self._api = self._client.ApiClient(configuration)
        self._core = self._client.CoreV1Api(self._api)
        self._custom = self._client.CustomObjectsApi(self._api)
        # The time of the API's clock, for comparison with the times of its objects.
        self.now = time.time()

    @staticmethod
    def _has_kubeconfig(config: Any) -> bool:
        named = str(config.kube_config.KUBE_CONFIG_DEFAULT_LOCATION)
        return any(Path(one).expanduser().is_file() for one in named.split(":") if one)

    def _request(self, doing: str, call: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        """Call the API and return the text of its response. Raises ClusterError."""
        try:
            answer = call(*arguments, _preload_content=False, _request_timeout=_TIMEOUT_S, **options)
        except self._client.ApiException as error:
            status = int(error.status or 0)
            raise ClusterError(
                kubernetes_findings.api_error(status, error.body or error.reason, doing), status
            ) from None
        except Exception as error:
            # Errors of urllib3, of ssl, or of a plugin that fetches credentials.
            raise ClusterError(kubernetes_findings.unreachable(self.server, f"{error}")) from None
        try:
            self.now = parsedate_to_datetime(answer.headers["Date"]).timestamp()
        except (KeyError, TypeError, ValueError):
            self.now = time.time()
        return answer.data.decode("utf-8", "replace")

    def _json(self, doing: str, call: Callable[..., Any], *arguments: Any, **options: Any) -> dict[str, Any]:
        answer: dict[str, Any] = json.loads(self._request(doing, call, *arguments, **options))
        return answer

    def _found(self, doing: str, call: Callable[..., Any], *arguments: Any, **options: Any) -> dict[str, Any] | None:
        """Return an object, or None if there is none with this name."""
        try:
            return self._json(doing, call, *arguments, **options)
        except ClusterError as error:
            if error.status == 404:
                return None
            raise

    def version(self) -> str:
        """Return the version of the cluster: 1.33."""
        response = self._json("asking for its version", self._client.VersionApi(self._api).get_code)
        return str(response.get("gitVersion", "")).removeprefix("v")

    def serves(self, api_version: str, kind: str) -> bool:
        """Tell whether the cluster knows a kind of resource."""
        group, _, version = api_version.partition("/")
        found = self._found(f"asking for {api_version}", self._custom.get_api_resources, group, version)
        return found is not None and any(resource["kind"] == kind for resource in found["resources"])

    def may(self, verb: str, group: str, resource: str, subresource: str = "") -> tuple[bool, str]:
        """Return whether we may do something in the namespace, and the cluster's reason."""
        attributes = {"verb": verb, "group": group, "resource": resource, "subresource": subresource}
        review = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": {"namespace": self.namespace, **attributes}},
        }
        api = self._client.AuthorizationV1Api(self._api)
        status = self._json("asking for our rights", api.create_self_subject_access_review, review).get("status", {})
        return bool(status.get("allowed")), str(status.get("reason") or "")

    def has(self, kind: str, name: str) -> bool:
        """Tell whether an object of the core API exists. An object that we may not read counts as existing."""
        read = {
            "PersistentVolumeClaim": self._core.read_namespaced_persistent_volume_claim,
            "Secret": self._core.read_namespaced_secret,
            "ServiceAccount": self._core.read_namespaced_service_account,
        }[kind]
        try:
            return self._found(f"looking for {kind} {name}", read, name, self.namespace) is not None
        except ClusterError as error:
            if error.status == 403:
                return True
            raise

    def resource(self, settings: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return the job's resource, or None if it does not exist."""
        read, place = self._method("read", settings["api_version"], settings["resource"])
        return self._found(f"reading {settings['resource']} {settings['name']}", read, **place, name=settings["name"])

    def create(self, manifest: Mapping[str, Any]) -> None:
        """Create an object. Raises ClusterError, also if its name is taken."""
        kind, name = manifest["kind"], manifest["metadata"]["name"]
        call, place = self._method("create", manifest["apiVersion"], kind)
        self._request(f"creating {kind} {name}", call, **place, body=manifest)

    def delete(self, version: str, kind: str, name: str, grace_s: float = 0.0) -> None:
        """Remove an object and its dependents, and wait until it no longer exists. Raises ClusterError.

        Its pods have `grace_s` to end.
        Without the right to read a kind, a launch has created none of it, so there is nothing to remove.
        """
        doing = f"removing {kind} {name}"
        remove, place = self._method("delete", version, kind)
        read, _ = self._method("read", version, kind)
        try:
            removed = self._found(doing, remove, **place, name=name, propagation_policy="Foreground") is None
            patience_s = _REMOVAL_S + int(grace_s)
            deadline = time.monotonic() + patience_s
            while not removed and self._found(doing, read, **place, name=name) is not None:
                if time.monotonic() > deadline:
                    raise ClusterError(kubernetes_findings.not_removed(kind, name, self.namespace, patience_s))
                time.sleep(_POLL_S)
        except ClusterError as error:
            if error.status != 403:
                raise

    def _method(self, verb: str, version: str, kind: str) -> tuple[Callable[..., Any], dict[str, str]]:
        """Return the client's function for a verb and a kind of object, and its arguments except name and body."""
        if "/" not in version:
            snake = {"Secret": "secret", "ConfigMap": "config_map", "Service": "service"}[kind]
            call = getattr(self._core, f"{verb}_namespaced_{snake}")
            return call, {"namespace": self.namespace}
        # The plain Job, too: this interface accepts any group and unchanged manifests.
        group, _, short = version.partition("/")
        method = {"read": "get"}.get(verb, verb)
        call = getattr(self._custom, f"{method}_namespaced_custom_object")
        place = {"namespace": self.namespace, "group": group, "version": short, "plural": RESOURCES[kind].plural}
        return call, place

    def pods(self, name: str) -> list[dict[str, Any]]:
        """Return the pods of a job."""
        listing, label = self._core.list_namespaced_pod, f"{LABEL}={name}"
        return list(self._json("listing pods", listing, self.namespace, label_selector=label)["items"])

    def warnings(self) -> list[dict[str, Any]]:
        """Return the warnings of the namespace; [] without the right to read events."""
        listing, selected = self._core.list_namespaced_event, {"field_selector": "type=Warning", "limit": 500}
        try:
            return list(self._json("listing events", listing, self.namespace, **selected)["items"])
        except ClusterError:
            return []

    def ask(self, pod: str, container: str, command: Sequence[str], line: str, limit_s: float) -> bytes:
        """Run a command in a container with a line as its input; return the first line that it prints.

        The protocol cannot close the input, so the command reads no more. Raises ClusterError.
        """
        doing = f"asking pod {pod}"
        stream: Any = importlib.import_module("kubernetes.stream")
        # The function replaces a method of its client, which other threads use.
        core = self._client.CoreV1Api(self._client.ApiClient(self._configuration))
        channels = {"stdin": True, "stdout": True, "stderr": True, "tty": False, "_preload_content": False}
        about = {"container": container, "command": list(command), **channels, "_request_timeout": _TIMEOUT_S}
        printed, beside = bytearray(), bytearray()
        try:
            opened = stream.stream(core.connect_get_namespaced_pod_exec, pod, self.namespace, **about)
            with contextlib.closing(opened):
                opened.sock.settimeout(limit_s)
                opened.write_stdin(f"{line}\n")
                while b"\n" not in printed:
                    code, frame = opened.sock.recv_data_frame(True)
                    if code == _CLOSE:
                        break
                    # The first byte is the channel.
                    part = printed if frame.data[:1] == b"\1" else beside
                    part += frame.data[1:] if code in _DATA else b""
                    if len(printed) + len(beside) > MAX_PRINTED:
                        raise ClusterError(kubernetes_findings.unreachable(self.server, f"{doing}: too long an answer"))
        except self._client.ApiException as error:
            status = int(error.status or 0)
            raise ClusterError(
                kubernetes_findings.api_error(status, error.body or error.reason, doing), status
            ) from None
        except (OSError, ValueError, self._websocket_error()) as error:
            raise ClusterError(kubernetes_findings.unreachable(self.server, f"{doing}: {error}")) from None
        if b"\n" not in printed:
            said = beside.decode("utf-8", "replace")[-500:]
            raise ClusterError(kubernetes_findings.api_error(0, said or "it printed nothing", doing))
        return bytes(printed.partition(b"\n")[0])

    @staticmethod
    def _websocket_error() -> type[Exception]:
        found: type[Exception] = importlib.import_module("websocket").WebSocketException
        return found

    def log(self, pod: str, container: str, **options: Any) -> str:
        """Return the log of a container, or "" if there is none yet."""
        place = (pod, self.namespace)
        try:
            log = self._core.read_namespaced_pod_log
            return str(self._request(f"reading the log of {pod}", log, *place, container=container, **options))
        except ClusterError as error:
            if error.status in (400, 404):
                return ""
            raise


def preflight(cluster: Cluster, kind: str, needs: Sequence[Mapping[str, str]], made: Sequence[str]) -> list[Finding]:
    """Find an unknown resource, missing rights and missing objects of a job.

    `made` are the other kinds of objects that the launch creates: secrets.
    """
    resource = RESOURCES[kind]
    if not cluster.serves(resource.api_version, kind):
        return [kubernetes_findings.no_operator(kind)]
    rights = [
        *((verb, resource.group, resource.plural, "") for verb in ("create", "get", "delete")),
        ("list", "", "pods", ""),
        ("get", "", "pods", "log"),
        # The client opens the connection by GET, which is `get` or `create` by the cluster's version.
        *((verb, "", "pods", "exec") for verb in ("get", "create") if kind == "Job"),
        # Without the right to read them, they could not be removed.
        *((verb, "", plural, "") for plural in made for verb in ("create", "get", "delete")),
    ]
    found = []
    for verb, group, plural, part in rights:
        allowed, reason = cluster.may(verb, group, plural, part)
        if not allowed:
            what = f"{plural}{'/' + part if part else ''}{'.' + group if group and group != 'batch' else ''}"
            found.append(kubernetes_findings.no_right(verb, what, cluster.namespace, reason))
    found += [
        kubernetes_findings.missing(need["kind"], need["name"], cluster.namespace, need["variable"])
        for need in needs
        if not cluster.has(need["kind"], need["name"])
    ]
    return found
