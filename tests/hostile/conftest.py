"""Tests that attack: what a node, a local user or a job may plant. They import as the unit tests do.

As root the training user is `nobody`, and the attacks aim at what is root's. Without root they aim at what is our own:
links, pipes and false names must lead nowhere there, too.
"""

import os
import pwd
import shutil
import sys
import tempfile
from pathlib import Path

import ansible.module_utils
import pytest

PROJECT = Path(__file__).resolve().parents[2]

if str(PROJECT / "module_utils") not in ansible.module_utils.__path__:
    ansible.module_utils.__path__.append(str(PROJECT / "module_utils"))
if str(PROJECT / "library") not in sys.path:
    sys.path.insert(0, str(PROJECT / "library"))
sys.path.insert(0, str(PROJECT / "tests/unit"))

import untimed  # noqa: E402, F401
from ansible.module_utils.trainyard_node.job.run import job_life  # noqa: E402
from ansible.module_utils.trainyard_node.job.run.ranks import units  # noqa: E402
from ansible.module_utils.trainyard_node.machine import as_user  # noqa: E402
from ansible.module_utils.trainyard_node.slurm import set_aside  # noqa: E402

IS_ROOT = os.geteuid() == 0


class Place:
    """A node's folders: `state` is the training user's, as clusters have it that were built before; `secret` is not."""

    def __init__(self, base):
        self.user = "nobody" if IS_ROOT else pwd.getpwuid(os.getuid()).pw_name
        self.owner = as_user.named(self.user)
        self.state = base / "state"
        self.jobs = self.state / "jobs"
        for folder in (self.state, self.jobs):
            folder.mkdir()
            os.chown(folder, self.owner.uid, self.owner.gid)
        self.roots = base / "roots"
        self.roots.mkdir()
        self.secret = self.roots / "secret"
        self.secret.write_text("hunter2")
        self.secret.chmod(0o600)

    def folder(self, name):
        """The folder of a job, as its user makes it."""
        folder = self.jobs / name
        self.does(os.mkdir, folder)
        for each in ("source", "logs", "exits"):
            self.does(os.mkdir, folder / each)
        return folder

    def does(self, function, *arguments):
        """Have the training user do something."""
        as_user.run(self.owner, lambda: function(*arguments) and None)

    def writes(self, path, content):
        """Have the training user write a file."""
        self.does(path.write_text, content)


@pytest.fixture(autouse=True)
def no_slurm(monkeypatch):
    """A lab on this machine may run Slurm, whose processes are to be seen here."""
    monkeypatch.setattr(set_aside, "node_name", lambda: "")


@pytest.fixture
def place(monkeypatch):
    # Where any user comes through, unlike pytest's own folder; with a Python that any user can start.
    base = Path(tempfile.mkdtemp(dir="/tmp"))
    base.chmod(0o755)
    monkeypatch.setattr(units, "SYSTEMD_RUNNING", base / "no-systemd")
    if IS_ROOT:
        monkeypatch.setattr(job_life.sys, "executable", "/usr/bin/python3")
    yield Place(base)
    shutil.rmtree(base)
