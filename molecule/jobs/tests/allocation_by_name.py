"""The program that Slurm starts on the hosts of an allocation, on three hosts, with a fake srun and a fake scancel.

The first host is lost with the job's script, which no cluster of the lab survives: its Slurm is led from there.
"""

import io
import json
import subprocess
import tarfile

import pytest
from ansible.module_utils.trainyard_controller.nodes import agent_code
from lab_jobs import PROJECT, wait_until

JOB = "allocated-1"
STATE = "/var/lib/trainyard"
PROGRAM = "/var/tmp/allocated"  # noqa: S108 (in the lab)


def packed(restarts):
    """Return the program of a job of two nodes and a spare, whose ranks make 300 steps in 30 s."""
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w:gz") as source:
        source.add(PROJECT / "molecule/jobs/worker/worker.py", "worker.py")
    job = {
        "job_name": "allocated", "job_command": ["python3", "worker.py", "--steps", "300"], "job_launcher": "direct",
        "job_nodes": 2, "job_spares": 1, "job_max_restarts": restarts, "job_devices": "none", "job_min_disk_mib": 1,
        "job_rejoin_timeout": 30,
    }  # fmt: skip
    where = {
        "job_id": JOB, "created": "", "submit_host": "n1", "state_dir": STATE, "user": "train", "hosts": [],
        "known": [], "node_env": {}, "all_reduce": "", "venvs": "",
    }  # fmt: skip
    return agent_code.allocated({"job": job, "where": where, "mpi_prefix": "", "secrets": ""}, content.getvalue())


@pytest.fixture
def started(nodes, tmp_path):
    """Start the program on each node, as srun would, and return its processes."""
    (tmp_path / "program.zip").write_bytes(packed(restarts=2))
    running = {}
    env = {"SLURM_JOB_NODELIST": "n[1-3]", "SLURM_STEP_NODELIST": "n[1-3]", "SLURM_JOB_ID": "7"}
    env["PATH"] = f"{PROGRAM}:/usr/bin:/bin"

    def command(node, more, *words):
        given = [f"{name}={value}" for name, value in {**env, **more}.items()]
        run = ["runuser", "-u", "train", "--", "env", *given, "python3", "-IS", f"{PROGRAM}/here/program.zip", *words]
        return ["podman", "exec", nodes[node].container, *run]

    for node in nodes.values():
        node.host.check_output(f"rm -rf {PROGRAM} {STATE}/jobs/{JOB} && install -d -o train {PROGRAM}/here")
        subprocess.run(["podman", "cp", tmp_path / "program.zip", f"{node.container}:{PROGRAM}/here/"], check=True)
        node.host.check_output(f"printf '#!/bin/sh\\necho $* >{PROGRAM}/canceled\\n' >{PROGRAM}/scancel")
        node.host.check_output(f"chmod +x {PROGRAM}/scancel; chown -R train {PROGRAM}")
    met = subprocess.run(command("n1", {}, "meeting"), capture_output=True, text=True, check=True).stdout.strip()
    for number, name in enumerate(nodes):
        more = {"SLURM_NODEID": number, "TRAINYARD_MEETING": met}
        printed = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        running[name] = subprocess.Popen(command(name, more, "node"), **printed)
    yield running
    for process in running.values():
        process.kill()
    for node in nodes.values():
        node.host.run(f"rm -rf {PROGRAM} {STATE}/jobs/{JOB}")


def test_hosts_without_the_first_one_go_on_and_end_their_allocation(started, nodes, node_vars):
    first, *others = nodes.values()

    def state(node):
        found = node.host.run(f"cat {STATE}/jobs/{JOB}/hosts/*/cluster.json")
        return json.loads(found.stdout) if found.rc == 0 else {}

    wait_until(lambda: (state(first).get("metrics") or {}).get("step", 0) > 5, "the ranks train")
    first.podman("kill")
    try:
        for node in others:
            status = started[node.name].wait(240)
            assert status == 0, node.host.run(f"cat {STATE}/jobs/{JOB}/hosts/*/monitor.json").stdout
        ends = [state(node).get("end") for node in others if state(node)]
        assert "succeeded" in [end["state"] for end in ends if end], ends
        for node in others:
            assert node.host.check_output(f"cat {PROGRAM}/canceled") == "7"
            assert node.processes(JOB) == []
    finally:
        first.boot(node_vars["n1"]["ansible_host"])
