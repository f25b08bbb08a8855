#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Slurm's Epilog on each node of a job: kills remaining processes of the job, such as children of a killed rank. It acts
# as the job's user: root in a container cannot read the environment of other users, and the user's processes must not
# make root kill anything. It never fails, as that would drain the node.
[ -n "$SLURM_JOB_USER" ] && [ -n "$SLURM_JOB_ID" ] || exit 0
# env -i removes the job's variables, as the epilog would kill itself otherwise.
# shellcheck disable=SC2016
runuser -u "$SLURM_JOB_USER" -- env -i PATH="${PATH:-/usr/bin:/bin}" /bin/sh -c '
for path in $(grep -lzsx "SLURM_JOB_ID=$1" /proc/[0-9]*/environ); do
    pid=${path#/proc/}
    kill -KILL "${pid%/environ}" 2>/dev/null
done' epilog "$SLURM_JOB_ID"
exit 0
