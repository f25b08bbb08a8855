# SPDX-License-Identifier: Apache-2.0
"""Flags of Podman and Docker with which jobs start containers; the role container_runtime verifies exactly these."""

from __future__ import annotations

# A container shares all with its node but files. SELinux would keep it from the job's folder, and the usual filter of
# system calls a rank from placing its memory (numactl); without an image a rank has neither.
SHARED = (
    *("--network=host", "--uts=host", "--ipc=host", "--pid=host"),
    *("--security-opt=label=disable", "--security-opt=seccomp=unconfined"),
)


def podman_flags(cgroups: str = "no-conmon") -> tuple[str, ...]:
    """Return Podman's flags: the user keeps its ids, the log gets the bytes of the rank, limits are those of its unit.

    `cgroups` is `split` where a unit may divide its own group.
    """
    # Without groups of its own, Podman says in the log of the rank that it cannot limit anything.
    unlimited = ("--pids-limit=-1",) if cgroups == "split" else ()
    own = ("--userns=keep-id", f"--cgroups={cgroups}", "--log-driver=passthrough", "--ulimit=host")
    return (*SHARED, *own, *unlimited)
