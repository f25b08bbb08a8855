#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Slurm's Epilog on each node of a job: kills remaining processes of the job, such as children of a killed rank. It acts
# as the job's user: root in a container cannot read the environment of other users, and the user's processes must not
# make root kill anything. It never fails, as that would drain the node.
#
# The user's processes may stop or trace what runs as the user, so root ends that after this many seconds. It holds no
# output either, for whose end slurmd would wait. PrologEpilogTimeout in slurm.conf is longer, as it drains the node.
limit=${1:-20}
# Root's jobs end nothing: root's processes are those of the system, and this script itself names the job.
[ "$SLURM_JOB_USER" != root ] || exit 0
case $SLURM_JOB_UID in '' | 0* | *[!0-9]*) exit 0 ;; esac
case $SLURM_JOB_GID in '' | *[!0-9]*) exit 0 ;; esac
case $SLURM_JOB_ID in '' | *[!0-9]*) exit 0 ;; esac
# env -i removes the job's variables, as the search would find itself otherwise.
# shellcheck disable=SC2016
timeout -s KILL "$limit" setpriv --reuid "$SLURM_JOB_UID" --regid "$SLURM_JOB_GID" --clear-groups \
    env -i PATH="${PATH:-/usr/bin:/bin}" /bin/sh -c '
for path in $(grep -lzsx "SLURM_JOB_ID=$1" /proc/[0-9]*/environ); do
    pid=${path#/proc/}
    kill -KILL "${pid%/environ}" 2>/dev/null
done' epilog "$SLURM_JOB_ID" </dev/null >/dev/null 2>&1
exit 0
