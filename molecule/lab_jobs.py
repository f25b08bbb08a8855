"""Playbooks run as a user runs them, in the background so that a test can act meanwhile; nodes seen from inside."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import ansible.module_utils
import testinfra

PROJECT = Path(__file__).resolve().parents[1]
# As Ansible itself finds them. What names hosts in a finding names them in a test, too, however many the lab has.
ansible.module_utils.__path__.append(str(PROJECT / "module_utils"))
sys.path.append(str(PROJECT / "tests/unit"))
import warm_ansible  # noqa: E402
from ansible.module_utils.trainyard.base.findings import host_list as host_list  # noqa: E402

SCENARIO = PROJECT / "molecule/jobs"
LAB = os.environ.get("LAB") or "trainyard"
WORKER = SCENARIO / "jobs/worker.yml"
AGENTS = SCENARIO / "jobs/agents.yml"
# Variables of a launch by the name of its scheduler; and the names that were chosen (CONTRIBUTING.md).
SCHEDULERS: dict[str, dict[str, str]] = {"ssh": {}, "slurm": {"job_scheduler": "slurm"}}
CHOSEN = list(filter(None, os.environ.get("TRAINYARD_SCHEDULERS", "").split(",")))
# A hang must become a failure; nothing is judged by it.
PATIENCE_S = 300


def _environment() -> dict[str, str]:
    env = {**os.environ, "ANSIBLE_CONFIG": str(PROJECT / "ansible.cfg"), "ANSIBLE_NOCOLOR": "1"}
    env.pop("ANSIBLE_FORCE_COLOR", None)
    return env


class PlaybookRun(NamedTuple):
    """Exit status and output of ansible-playbook."""

    rc: int
    output: str

    @property
    def text(self) -> str:
        """Return the output on one line, as Ansible breaks long messages anywhere."""
        return " ".join(self.output.split())

    def expect(self, status: int, *texts: str) -> PlaybookRun:
        """Check the exit status, and that the output, on one line, has these texts."""
        assert self.rc == status, self.output
        return self._has(texts)

    def fails(self, *texts: str) -> PlaybookRun:
        """Check that the run failed, with these texts in its output."""
        assert self.rc != 0, self.output
        return self._has(texts)

    def _has(self, texts: tuple[str, ...]) -> PlaybookRun:
        missing = [text for text in texts if text not in self.text]
        assert not missing, f"no {missing} in:\n{self.output}"
        return self

    def changes_nothing(self) -> PlaybookRun:
        """Check that no task changed anything on any host."""
        assert set(self.changes.values()) == {0}, self.output
        return self

    @property
    def changes(self) -> dict[str, int]:
        """Return the number of changed tasks by host, from the recap; findings before any change leave it out."""
        recap = re.findall(r"^(\S+) +: ok=\d+ +changed=(\d+)", self.output, re.MULTILINE)
        if not recap and re.search(r"^  1\. .+\n     found ", self.output, re.MULTILINE):
            return {"any host": 0}
        return {host: int(number) for host, number in recap}


def ansible_playbook(
    path: Path, inventory: Path, /, *arguments: str, timeout: int = 600, **extra_vars: Any
) -> PlaybookRun:
    """Run a playbook to its end."""
    argv = ["ansible-playbook", "-i", str(inventory), str(path), *arguments, "-e", json.dumps(extra_vars)]
    with tempfile.NamedTemporaryFile("r") as output:
        process = warm_ansible.Process(argv, PROJECT, _environment(), output.name, output.name, timeout)
        return PlaybookRun(process.wait(), output.read())


def ssh_from_here(there: dict[str, Any], user: str, key: Path | str, *words: str) -> subprocess.CompletedProcess[str]:
    """Log in from this machine to a node with these variables; `words` are options and the command.

    ssh has only this key, no configuration and no agent.
    """
    *options, command = words
    argv = ["ssh", *there["ansible_ssh_common_args"].split(), "-F", "/dev/null", "-o", "BatchMode=yes"]
    argv += ["-o", "IdentityAgent=none", "-i", str(key), *options, f"{user}@{there['ansible_host']}", command]
    return subprocess.run(argv, check=False, capture_output=True, text=True, timeout=PATIENCE_S)


def wait_until(condition: Callable[[], Any], what: str, patience_s: float = PATIENCE_S) -> Any:
    """Poll until `condition` returns something true, and return that.

    A condition that looks into containers takes a while: what is waited for needs the processor more.
    """
    deadline = time.monotonic() + patience_s
    while (began := time.monotonic()) < deadline:
        found = condition()
        if found:
            return found
        time.sleep(max(0.1, 2 * (time.monotonic() - began)))
    raise AssertionError(f"not within {patience_s} s: {what}")


@contextlib.contextmanager
def other_numpy(host: Any, venv: str, version: str, other: str) -> Iterator[None]:
    """Alter the record of an installed numpy: another build of the framework, of gigabytes, would show no more."""
    metadata = host.check_output(f"ls -d {venv}/lib/python*/site-packages/numpy-{version}.dist-info")
    altered = metadata.replace(f"numpy-{version}", f"numpy-{other}")
    host.check_output(
        f"sudo cp -p {venv}/.trainyard.json /root/record && sudo mv {metadata} {altered} "
        f"&& sudo sed -i 's/^Version: {version}/Version: {other}/' {altered}/METADATA "
        f'&& sudo sed -i \'s/"numpy": "{version}"/"numpy": "{other}"/\' {venv}/.trainyard.json'
    )
    try:
        yield
    finally:
        host.check_output(
            f"sudo mv {altered} {metadata} && sudo sed -i 's/^Version: {other}/Version: {version}/' "
            f"{metadata}/METADATA && sudo mv /root/record {venv}/.trainyard.json"
        )


class Run:
    """One ansible-playbook in the background, in a session of its own as in a terminal, and the run that it made."""

    def __init__(self, argv: list[str], output: Path, runs: Path) -> None:
        self._output, self._runs = output, runs
        self.process = warm_ansible.Process(argv, PROJECT, _environment(), output, output)

    @property
    def output(self) -> str:
        """Return the output so far."""
        return self._output.read_text()

    @property
    def lines(self) -> list[str]:
        return self.output.rstrip().splitlines()

    @property
    def first_line(self) -> str:
        """Return the first line, but for those that a busy machine shows while it prepares."""
        return next(line for line in self.lines if not line.startswith("  "))

    @property
    def text(self) -> str:
        """The output on one line, for comparing whole sentences."""
        return " ".join(self.output.split())

    def wait(self) -> Run:
        """Wait for the end; hangs become a failure with the output so far."""
        try:
            self.process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            raise AssertionError(f"still running after {PATIENCE_S} s:\n{self.output}") from None
        return self

    @property
    def rc(self) -> int:
        self.wait()
        return self.process.returncode

    def expect(self, status: int, *texts: str) -> Run:
        """Check the exit status, and that the output, on one line, has these texts."""
        PlaybookRun(self.rc, self.output).expect(status, *texts)
        return self

    def shows(self, status: int, *lines: str) -> Run:
        """Check the exit status, and that the output has these lines."""
        self.expect(status)
        missing = [line for line in lines if line not in self.lines]
        assert not missing, f"no {missing} in:\n{self.output}"
        return self

    def trained(self, ranks: int) -> Run:
        """Check that the job succeeded, with equal parameters on its ranks and a good accuracy."""
        self.expect(0)
        assert self.summary["state"] == "succeeded"
        assert len(self.checksums(ranks)) == 1
        assert self.accuracy > 90
        return self

    def names_killed(self, rank: int, host: str) -> Run:
        """Check that the job failed, as a rank on this host was killed."""
        self.shows(2, f"  rank {rank} on {host} failed first: killed by SIGKILL")
        failure = self.summary["failure"]
        assert (failure["kind"], failure["host"], failure["rank"], failure["signal"]) == ("exit", host, rank, 9)
        assert self.summary["state"] == "failed"
        return self

    def wait_for(self, pattern: str) -> re.Match[str]:
        """Wait until the user has seen something."""

        def seen() -> re.Match[str] | None:
            found = re.search(pattern, self.output)
            if found is None and self.process.poll() is not None:
                raise AssertionError(f"ended with {self.process.returncode} without {pattern!r}:\n{self.output}")
            return found

        return wait_until(seen, f"{pattern!r} in\n{self._output}")

    def trains(self) -> Run:
        """Wait until all ranks run and report progress."""
        self.wait_for(r"(\d+)/\1 ranks running   step")
        return self

    @property
    def job_id(self) -> str:
        return self.wait_for(r"(?:Job|Plan of) ([a-z0-9-]+-\d{8}-\d{6}-[0-9a-f]{4})\b")[1]

    @property
    def folder(self) -> Path:
        """The run's folder on the controller."""
        return self._runs / self.job_id

    @property
    def job_dir(self) -> str:
        """The job's folder on the nodes."""
        return f"/var/lib/trainyard/jobs/{self.job_id}"

    def file(self, name: str, host: str = "") -> Any:
        """A file of the run's folder; with a host, its paths are those on this host."""
        text = (self.folder / name).read_text()
        return json.loads(text.replace("@trainyard-host@", host) if host else text)

    @property
    def summary(self) -> dict[str, Any]:
        self.wait()
        return self.file("summary.json")

    def log(self, rank: int) -> str:
        name = self.file("plan.json")["rank_log"].replace("{rank}", str(rank))
        return (self.folder / "logs" / name).read_text()

    def checksums(self, ranks: int) -> set[str]:
        """Checksums of the parameters, as these ranks printed them last into their own logs."""
        pattern = "^rank {} parameters sha256 ([0-9a-f]{{64}})$"
        return {re.findall(pattern.format(rank), self.log(rank), re.MULTILINE)[-1] for rank in range(ranks)}

    @property
    def accuracy(self) -> float:
        """The final accuracy, in percent."""
        return float(re.search(r"^final test accuracy ([\d.]+) %$", self.log(0), re.MULTILINE)[1])


class Play:
    """Starts playbooks against the lab, with a runs folder of their own."""

    def __init__(self, folder: Path, inventory: Path) -> None:
        self.folder, self.inventory, self.runs = folder, inventory, folder / "runs"
        # As commands name it that are printed.
        self.shown_inventory = os.path.relpath(inventory, PROJECT)
        self._started: list[Run] = []

    def __call__(self, playbook: str, *arguments: str | Path, inventory: Path | None = None, **extra_vars: Any) -> Run:
        """Start a playbook; a Path among the arguments is a job file, keywords are extra variables."""
        argv = ["ansible-playbook", playbook, "-i", str(inventory or self.inventory)]
        for argument in arguments:
            argv += ["-e", f"@{argument}"] if isinstance(argument, Path) else [argument]
        argv += ["-e", json.dumps({"trainyard_runs": str(self.runs), **extra_vars})]
        run = Run(argv, self.folder / f"output{len(self._started)}.txt", self.runs)
        self._started.append(run)
        return run

    def launch(self, *arguments: str | Path, **extra_vars: Any) -> Run:
        return self("launch.yml", *arguments, **extra_vars)

    def end(self) -> None:
        """Leave no playbook behind where a test failed half-way."""
        for run in self._started:
            if run.process.poll() is None:
                os.killpg(run.process.pid, signal.SIGKILL)
                run.process.wait()


class ProcessTable:
    """The processes of jobs on one host, under any supervisor."""

    def __init__(self, host: Any) -> None:
        self.host = host

    def of_job(self, job_id: str) -> list[int]:
        """Process ids of a job, found by the job id in their environment.

        Asked as each user that may run jobs: root in a container may not read what belongs to others.
        """
        # One command, as each one costs more to start in a container than to run.
        look = f"grep -lzsx 'TRAINYARD_JOB_ID={job_id}' /proc/[0-9]*/environ"
        found = self.host.run(
            "for user in root train ops bob eve; do id $user >/dev/null 2>&1 "
            f'&& runuser -u $user -- sh -c "{look}"; done'
        )
        return sorted({int(path.split("/")[2]) for path in found.stdout.split()})

    def read_json(self, path: str) -> Any:
        return json.loads(self.host.check_output(f"cat {path}"))

    def rank(self, job_dir: str, rank: int) -> int:
        """Process id of a rank, as the worker prints it."""
        return int(re.search(r"pid (\d+)", self.host.check_output(f"cat {job_dir}/hosts/*/logs/rank_{rank}.log"))[1])

    def kill(self, pid: int) -> None:
        self.host.check_output(f"kill -9 {pid}")


def _answers(address: str) -> bool:
    try:
        socket.create_connection((address, 22), 2).close()
    except OSError:
        return False
    return True


class Node:
    """A node seen through podman, so also one that is cut off from the network."""

    def __init__(self, name: str) -> None:
        self.name, self.container = name, f"{LAB}-{name}"
        self.host = testinfra.get_host(f"podman://{self.container}")
        self.table = ProcessTable(self.host)

    def podman(self, *command: str) -> None:
        # A node may take a minute to stop, and podman another one on a busy machine.
        subprocess.run(["podman", *command, self.container], check=True, capture_output=True, timeout=240)

    def boot(self, address: str) -> None:
        """Start the node again after a kill, and wait until its sshd answers on the network."""
        for attempt in (1, 2):
            # Podman cleans up after a killed container in the background. When that comes late it takes the network of
            # the container that was started meanwhile, so it is done before the start, and once more where it was late.
            self.podman("container", "cleanup")
            self.podman("start")
            try:
                wait_until(self.running, f"{self.name} boots")
                wait_until(lambda: _answers(address), f"{self.name} answers on {address}", patience_s=60)
                return
            except AssertionError:
                if attempt == 2:
                    raise
                self.podman("stop")

    def processes(self, job_id: str) -> list[int]:
        return self.table.of_job(job_id)

    def ranks(self, job_id: str) -> list[int]:
        """Process ids of a job's ranks: without its monitor, and without what is about to become a rank."""
        ours = f"/var/lib/trainyard/jobs/{job_id}/hosts/{self.name}/trainyard.pyz"
        found = self.host.run(
            f"for pid in {' '.join(map(str, self.processes(job_id)))}; do "
            '[ -n "$(tr -d "\\0" 2>/dev/null </proc/$pid/cmdline)" ] && '
            f"! grep -qzxF {ours} /proc/$pid/cmdline && echo $pid; done"
        )
        return [int(pid) for pid in found.stdout.split()]

    def _read(self, run: Run, name: str) -> dict[str, Any]:
        found = self.host.run(f"cat {run.job_dir}/hosts/{self.name}/{name}")
        return json.loads(found.stdout) if found.rc == 0 else {}

    def cluster(self, run: Run) -> dict[str, Any]:
        """Return what this node knows of the whole job, {} before its monitor has begun."""
        return self._read(run, "cluster.json")

    def end(self, run: Run) -> dict[str, Any] | None:
        """Return how the node's part of the job has ended, if it has."""
        return self._read(run, "monitor.json").get("end")

    def kill_rank(self, job_id: str, rank: int) -> None:
        """Kill a rank with SIGKILL, as the kernel does when memory runs out."""
        self.table.kill(self.table.rank(f"/var/lib/trainyard/jobs/{job_id}", rank))

    def kill_process(self, run: Run, process: str) -> None:
        """Kill a process of the job's plan, such as the scheduler, with SIGKILL."""
        self.table.kill(self.table.read_json(f"{run.job_dir}/hosts/*/pids.json")[process]["pid"])

    def running(self) -> bool:
        return self.host.run("systemctl is-system-running").stdout.strip() in ("running", "degraded")


class Cut:
    """A network that falls apart: routes that lead nowhere, between all nodes of two sides."""

    def __init__(
        self, nodes: Mapping[str, Node], node_vars: Mapping[str, Any], one: Iterable[str], other: Iterable[str]
    ) -> None:
        self._nodes = nodes
        self._routes = [
            (here, node_vars[there]["ansible_host"])
            for side, far in ((one, other), (other, one))
            for here in side
            for there in far
        ]

    def __enter__(self) -> Cut:
        for host, address in self._routes:
            self._nodes[host].host.check_output(f"ip route add blackhole {address}/32")
        return self

    def __exit__(self, *_: object) -> None:
        for host, address in self._routes:
            self._nodes[host].host.run(f"ip route del blackhole {address}/32")
