# SPDX-License-Identifier: Apache-2.0
"""Make a tar file of one commit of a git repository: the same bytes for the same commit, on every machine."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ...trainyard.base.visible import one_line
from ...trainyard.software.requirements import without_password
from ...trainyard_node.machine import commands

# Bounds of one command of git, in seconds, and of what is shown of an error, in characters.
_LIMIT_S, _SHOWN = 900, 300
# Nobody is asked for a password, and a server that sends next to nothing is given up. Git runs no helper of an address.
_REMOTE = {
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_ALLOW_PROTOCOL": "file:git:http:https:ssh",
    "GIT_HTTP_LOW_SPEED_LIMIT": "1000",
    "GIT_HTTP_LOW_SPEED_TIME": "30",
}


class GitError(ValueError):
    """Git has no such commit, or does not reach the repository."""


@contextmanager
def archive(repository: str, commit: str) -> Iterator[Path]:
    """Provide a tar file of a commit, without a folder around its files. Raises GitError."""
    with tempfile.TemporaryDirectory() as name:
        folder, made = Path(name, "git"), Path(name, "commit.tar")
        git = ["git", f"--git-dir={folder}"]
        _run(["git", "init", "--quiet", "--bare", "--template=", str(folder)], {})
        try:
            _run([*git, "fetch", "--quiet", "--depth=1", "--no-tags", "--", repository, commit], _REMOTE)
        except GitError:
            # An old server gives no single commits.
            everything = ("+refs/heads/*:refs/heads/*", "+refs/tags/*:refs/tags/*")
            _run([*git, "fetch", "--quiet", "--", repository, *everything], _REMOTE)
        # The settings of this user and this machine would change the content.
        bare = {"HOME": name, "XDG_CONFIG_HOME": name, "GIT_CONFIG_NOSYSTEM": "1", "GIT_ATTR_NOSYSTEM": "1"}
        _run([*git, "-c", "tar.umask=0022", "archive", "--format=tar", f"--output={made}", commit], bare)
        yield made


def _run(argv: list[str], more: dict[str, str]) -> None:
    own = {name: value for name, value in os.environ.items() if not name.startswith("GIT_CONFIG")}
    done = commands.run(argv, _LIMIT_S, env={**(own if "HOME" in more else os.environ), **more, "LC_ALL": "C.UTF-8"})
    if done.status:
        raise GitError(one_line(without_password(done.output.strip()), _SHOWN))
