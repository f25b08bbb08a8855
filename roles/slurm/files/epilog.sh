#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Slurm's Epilog on each node of a job: ends what the job has left there, such as the children of a killed rank. As its
# user, as root in a container may not look into what belongs to others. Never fails: that would drain the node.
[ -n "$SLURM_JOB_USER" ] && [ -n "$SLURM_JOB_ID" ] || exit 0
for path in $(runuser -u "$SLURM_JOB_USER" -- grep -lzsx "SLURM_JOB_ID=$SLURM_JOB_ID" /proc/[0-9]*/environ); do
    pid=${path#/proc/}
    kill -KILL "${pid%/environ}" 2>/dev/null
done
exit 0
