# SPDX-License-Identifier: Apache-2.0
"""Flags with which jobs start containers; the role container_runtime verifies those of Podman and Apptainer."""

from __future__ import annotations

# A container shares all with its node but files. SELinux would keep it from the job's folder, and the usual filter of
# system calls a rank from placing its memory (numactl); without an image a rank has neither.
SHARED = (
    *("--network=host", "--uts=host", "--ipc=host", "--pid=host"),
    *("--security-opt=label=disable", "--security-opt=seccomp=unconfined"),
)
# With Podman the user keeps its ids, the log gets the bytes of the rank itself, and limits are those of its unit. Its
# processes stay in the unit's group where the user may make no groups, as in a service of the system.
PODMAN = (*SHARED, "--userns=keep-id", "--cgroups=no-conmon", "--log-driver=passthrough", "--ulimit=host")
# Apptainer shares all but files by itself. Variables come from the job alone, and no shell expands their values.
APPTAINER = ("exec", "--cleanenv", "--no-eval", "--no-home")
