"""A simulated cluster, or with TRAINYARD_TEST_KUBECONFIG a real one (`make test-kubernetes`)."""

import json
import os
import sys
import tempfile
from pathlib import Path

import ansible.module_utils
import pytest

PROJECT = Path(__file__).resolve().parents[2]
ansible.module_utils.__path__.append(str(PROJECT / "module_utils"))
sys.path[:0] = [str(PROJECT / "tests/fixtures/kubernetes"), str(PROJECT / "tests/unit")]

import warm_ansible  # noqa: E402
from api_server import Api  # noqa: E402

REAL = os.environ.get("TRAINYARD_TEST_KUBECONFIG", "")
IMAGE = os.environ.get("TRAINYARD_TEST_IMAGE") or "python:3.12-slim"


class Run:
    """The result of a playbook."""

    def __init__(self, done, runs):
        self.rc, self.output, self.runs = done.returncode, done.stdout + done.stderr, runs
        self.text = " ".join(self.output.split())

    def expect(self, status, *texts):
        """Check the exit status, and that the output, on one line, has these texts."""
        assert self.rc == status, self.output
        missing = [text for text in texts if text not in self.text]
        assert not missing, f"no {missing} in:\n{self.output}"
        return self

    def fails(self, *texts):
        """Check that the playbook failed, with these texts in its output."""
        return self.expect(self.rc or "not 0", *texts)

    @property
    def folder(self):
        """Return the folder of the only run."""
        [found] = [path for path in self.runs.iterdir() if path.is_dir()]
        return found

    @property
    def summary(self):
        return json.loads((self.folder / "summary.json").read_text())


class Cluster:
    """Runs playbooks against a cluster; `api` is None for a real one."""

    def __init__(self, api, kubeconfig, folder):
        self.api, self.kubeconfig, self.folder = api, kubeconfig, folder
        self.runs = folder / "runs"
        # Ansible has sockets in the folder for temporary files, whose paths end at 107 bytes.
        self.scratch = tempfile.TemporaryDirectory(dir="/tmp")

    def play(self, playbook, *options, **variables):
        # clean.yml must not remove jobs of this machine.
        own = {"trainyard_runs": str(self.runs), "trainyard_state": str(self.folder / "state")}
        given = {**own, **variables}
        command = ["ansible-playbook", playbook, "-i", "inventories/localhost", "-e", json.dumps(given), *options]
        # The client caches facts of a cluster in the folder for temporary files.
        environment = {**os.environ, "TMPDIR": self.scratch.name, **warm_ansible.SETTINGS}
        environment = {key: value for key, value in environment.items() if key != "KUBECONFIG"}
        return Run(warm_ansible.run(command, PROJECT, environment, 500), self.runs)

    def launch(self, *options, **variables):
        job = {
            "job_name": "digits",
            "job_scheduler": "kubernetes",
            "job_launcher": "direct",
            "job_nodes": 2,
            "job_devices": "none",
            "job_image": IMAGE,
            "job_kubeconfig": self.kubeconfig,
            "job_timeout": 300,
            "job_namespace": os.environ.get("TRAINYARD_TEST_NAMESPACE", ""),
            "job_source": str(Path(__file__).parent / "source"),
            "job_command": ["python", "train.py", "0"],
        }
        return self.play("launch.yml", *options, **{**job, **variables})


@pytest.fixture
def fake(tmp_path):
    """Return a simulated cluster and its kubeconfig."""
    with Api() as api:
        cluster = Cluster(api, api.kubeconfig(tmp_path / "kubeconfig"), tmp_path)
        with cluster.scratch:
            yield cluster


@pytest.fixture
def cluster(request, tmp_path):
    """Return the real cluster if there is one, else the simulated one."""
    return Cluster(None, REAL, tmp_path) if REAL else request.getfixturevalue("fake")
