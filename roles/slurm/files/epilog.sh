#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Slurm's Epilog on each node of a job: ends what the job has left there, such as the children of a killed rank. As its
# user: root in a container may not look into what belongs to others, and what a process of that user says, which others
# of his may trace, must not have root end anything. Never fails: that would drain the node.
[ -n "$SLURM_JOB_USER" ] && [ -n "$SLURM_JOB_ID" ] || exit 0
# Without the job's own variables, or it would find itself.
# shellcheck disable=SC2016
runuser -u "$SLURM_JOB_USER" -- env -i PATH="${PATH:-/usr/bin:/bin}" /bin/sh -c '
for path in $(grep -lzsx "SLURM_JOB_ID=$1" /proc/[0-9]*/environ); do
    pid=${path#/proc/}
    kill -KILL "${pid%/environ}" 2>/dev/null
done' epilog "$SLURM_JOB_ID"
exit 0
