# SPDX-License-Identifier: Apache-2.0
"""One commit of a git repository, brought to a folder of this machine. Times are seconds."""

from __future__ import annotations

import os
import shutil
import subprocess

# A server that accepts a connection and then sends next to nothing is given up, where git itself would wait for ever.
_SLOW = ["-c", "http.lowSpeedLimit=1000", "-c", "http.lowSpeedTime=30"]
_UNATTENDED = {"LC_ALL": "C", "GIT_TERMINAL_PROMPT": "0", "GIT_SSH_COMMAND": "ssh -o BatchMode=yes"}
_ALL = ("+refs/heads/*:refs/remotes/origin/*", "+refs/tags/*:refs/tags/*")


class CommitError(Exception):
    """A commit that cannot be had: what was found, and what to do."""


class _Git:
    def __init__(self, folder: str, timeout: float) -> None:
        self._folder = folder
        self._timeout = timeout

    def run(self, *arguments: str) -> tuple[int, str]:
        """Run git in the folder; it asks nobody for a password. Returns its status and its reason."""
        try:
            done = subprocess.run(
                ["git", *_SLOW, *arguments],
                cwd=self._folder,
                check=False,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                timeout=self._timeout,
                env={**os.environ, **_UNATTENDED},
            )
        except subprocess.TimeoutExpired:
            return 124, f"no answer within {self._timeout:.0f} s"
        lines = [line.strip() for line in done.stdout.decode("utf-8", "replace").splitlines() if line.strip()]
        # What comes after a fatal error is advice, unless that ends with a colon.
        fatal = [number for number, line in enumerate(lines) if line.startswith(("fatal:", "error:"))]
        said = lines[fatal[-1] :] if fatal else lines[-1:] or ["git said nothing"]
        return done.returncode, " ".join(said[:2]) if said[0].endswith(":") else said[0]


def fetch_commit(url: str, commit: str, folder: str, timeout: float) -> None:
    """Check the commit out into the folder, which is there and empty. Raises CommitError.

    Asked for first is the one commit; a server that gives only what a branch or tag names is asked for all of these.
    """
    if shutil.which("git") is None:
        raise CommitError("git is not installed; install it, or take the source from an archive")
    git = _Git(folder, timeout)
    status, said = git.run("ls-remote", "--quiet", url, "HEAD")
    if status != 0:
        raise CommitError(f"{url} cannot be read: {said}; expected a git repository that this node reaches")
    for arguments in (("init", "--quiet"), ("remote", "add", "origin", url)):
        status, said = git.run(*arguments)
        if status != 0:
            raise CommitError(f"git {arguments[0]} failed in {folder}: {said}")
    status, said = git.run("fetch", "--quiet", "--no-tags", "--depth=1", "origin", commit)
    if status != 0:
        status, said = git.run("fetch", "--quiet", "origin", *_ALL)
        if status != 0:
            raise CommitError(f"{url} could not be fetched: {said}")
        if git.run("cat-file", "-e", f"{commit}^{{commit}}")[0] != 0:
            raise CommitError(f"{url} has no commit {commit}; expected one that a branch or tag of it reaches")
    status, said = git.run("checkout", "--quiet", "--detach", commit)
    if status != 0:
        raise CommitError(f"commit {commit} of {url} could not be checked out: {said}")
