"""Pods as Podman containers: exactly the command, the variables and the volumes of a manifest. This is no kubelet.

No image is pulled, nothing is scheduled, no probe and no quota exist, and names of pods are in /etc/hosts. Statuses,
logs and commands in pods are those of the containers.
"""

import base64
import json
import os
import shutil
import subprocess
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import courses
import exec_channel
from api_server import Api, Handler, now

PODMAN = shutil.which("podman") or "podman"
SETTINGS = Path(__file__).resolve().parents[2] / "molecule/default/containers.conf"


def podman(*words, check=True, **options):
    env = {**os.environ, "CONTAINERS_CONF": str(SETTINGS)}
    return subprocess.run([PODMAN, *words], check=check, capture_output=True, text=True, env=env, **options).stdout


class Pods(Api):
    """A cluster whose jobs run. `subnet` is the network of its pods, such as 10.78.0.0/24."""

    def __init__(self, subnet, folder):
        super().__init__()
        self.server.RequestHandlerClass = type("Bound", (PodHandler,), {"api": self})
        self.name = f"trainyard-pods-{os.getpid()}"
        self.subnet, self.folder = subnet, Path(folder)

    def __enter__(self):
        podman("network", "create", "--disable-dns", "--subnet", self.subnet, self.name)
        return super().__enter__()

    def __exit__(self, *details):
        super().__exit__(*details)
        for pod in self.pods():
            podman("rm", "--force", "--time", "0", pod, check=False)
        podman("network", "rm", "--force", self.name, check=False)

    def pods(self):
        return podman("ps", "--all", "--filter", f"label={self.name}", "--format", "{{.Names}}").split()

    def start(self, job):
        """Start the pods of an indexed Job."""
        name, spec = job["metadata"]["name"], job["spec"]["template"]["spec"]
        before = self.subnet.rpartition(".")[0]
        count = job["spec"]["completions"]
        hosts = [f"{name}-{index}.{spec['subdomain']}:{before}.{index + 10}" for index in range(count)]
        [container] = spec["containers"]
        for index in range(count):
            variables = {"JOB_COMPLETION_INDEX": str(index)}
            for each in container["env"]:
                source = each.get("valueFrom")
                # The only other source is the address of the pod.
                variables[each["name"]] = f"{before}.{index + 10}" if source else each["value"].replace("$$(", "$(")
            pod = f"{name}-{index}-x{index}q7z"
            podman(
                *("run", "--detach", "--name", pod, "--hostname", f"{name}-{index}", "--label", self.name),
                *("--network", self.name, "--ip", f"{before}.{index + 10}", "--log-driver", "k8s-file"),
                *(word for host in hosts for word in ("--add-host", host)),
                *(word for each in variables.items() for word in ("--env", "=".join(each))),
                *(word for mount in self.mounts(pod, spec, container) for word in ("--volume", mount)),
                *(("--workdir", container["workingDir"]) if "workingDir" in container else ()),
                *(("--memory", container["resources"]["limits"]["memory"]) if "resources" in container else ()),
                *("--entrypoint", json.dumps(container["command"]), container["image"]),
                # conmon notes there that memory was short.
                cwd=self.folder,
            )

    def mounts(self, pod, spec, container):
        """Make the volumes of a pod; ConfigMaps and Secrets are read through links, as a kubelet has them."""
        sources = {volume["name"]: volume for volume in spec["volumes"]}
        for mount in container["volumeMounts"]:
            volume, place = sources[mount["name"]], self.folder / pod / mount["name"]
            mode = "ro" if mount.get("readOnly") else "rw"
            if "hostPath" in volume:
                yield f"{volume['hostPath']['path']}:{mount['mountPath']}:{mode}"
                continue
            place.mkdir(parents=True)
            place.chmod(0o777)
            kind, named = ("configmaps", "configMap") if "configMap" in volume else ("secrets", "secret")
            if named in volume:
                found = self.objects[kind, volume[named].get("name") or volume[named]["secretName"]]
                (place / "..data").mkdir()
                for key, content in {**found.get("data", {}), **found.get("binaryData", {})}.items():
                    (place / "..data" / key).write_bytes(base64.b64decode(content))
                    (place / key).symlink_to(f"..data/{key}")
            yield f"{place}:{mount['mountPath']}:{mode}"

    def end(self, grace_s):
        """End all pods: SIGTERM, and SIGKILL later."""
        for pod in self.pods():
            podman("stop", "--time", str(grace_s), pod, check=False)
            podman("rm", "--force", pod, check=False)

    def advance(self):
        """Read how the containers are."""
        known = self.pods()
        states = json.loads(podman("inspect", *known)) if known else []
        for key in [key for key in self.objects if key[0] == "pods"]:
            del self.objects[key]
        for (plural, name), job in list(self.objects.items()):
            mine = [each for each in states if plural == "jobs" and each["Name"].startswith(f"{name}-")]
            statuses = [self.add(name, job, each) for each in mine]
            if mine:
                job["status"] = self.status(statuses, job)

    def add(self, name, job, container):
        state, pod = container["State"], container["Name"]
        index = pod[len(name) + 1 :].partition("-")[0]
        status = courses.runs()
        if state["Status"] not in ("running", "created", "stopping"):
            code, killed = state["ExitCode"], state["OOMKilled"]
            status = courses.ended(code, "OOMKilled" if killed else None, state["FinishedAt"][:19] + "Z")
        metadata = {
            **job["spec"]["template"]["metadata"],
            "name": pod,
            "creationTimestamp": state["StartedAt"][:19] + "Z",
        }
        index_of = {"batch.kubernetes.io/job-completion-index": index}
        metadata["annotations"] = {**metadata["annotations"], **index_of}
        self.objects["pods", pod] = {"metadata": metadata, "spec": {}, "status": status}
        return status

    def status(self, statuses, job):
        """Return the status of a Job of which each pod ends alone, or all of them by FailJob."""
        started = {"startTime": job["metadata"]["creationTimestamp"]}
        codes = [status["containerStatuses"][0]["state"].get("terminated", {}).get("exitCode") for status in statuses]
        if 78 in codes:
            return {**started, "conditions": [courses.condition("Failed", "PodFailurePolicy")]}
        if None in codes:
            return {**started, "active": codes.count(None)}
        if any(codes):
            return {**started, "conditions": [courses.condition("Failed", "FailedIndexes")]}
        return {**started, "completionTime": now(), "conditions": [courses.condition("Complete")]}


class PodHandler(Handler):
    """Answers about pods that run."""

    api: Pods

    def do(self):
        url = urlsplit(self.path)
        words = url.path.split("/")
        if words[-1] == "exec":
            command = [PODMAN, "exec", "--interactive", words[-2], *parse_qs(url.query)["command"]]
            pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
            return exec_channel.serve(self, subprocess.Popen(command, **pipes))
        if self.command == "DELETE" and words[-2] == "jobs":
            job = self.api.objects.get(("jobs", words[-1]))
            self.api.end(job["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] if job else 0)
        return super().do()

    do_GET = do_POST = do_DELETE = do

    def create(self, plural, kind, version, namespace, given):
        super().create(plural, kind, version, namespace, given)
        if plural == "jobs":
            self.api.start(self.api.objects[plural, given["metadata"]["name"]])

    def log_of(self, pod, query):
        self.answer(200, podman("logs", pod["metadata"]["name"]), "text/plain")
