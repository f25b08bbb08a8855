# SPDX-License-Identifier: Apache-2.0
"""Time to save in pods: a small script starts the ranks, and passes the cluster's SIGTERM on to their own programs.

Each program gets the job's stop signal once: not its data loader workers, not torchrun's agent, not shells. The cluster
kills what is left after `terminationGracePeriodSeconds`. The image needs sh, cat, sed, sleep and readlink.
"""

from __future__ import annotations

from ...file.job import Job

# Launchers whose ranks start through the script. mpirun starts ranks over ssh, msrun and an operator start them alone.
LAUNCHERS = ("torchrun", "direct")
# Time of the cluster to notice that the ranks have left, in seconds.
_MARGIN_S = 5
# Numbers of the stop signals on Linux, as sh of an image does not know all names.
_NUMBERS = {"HUP": 1, "INT": 2, "USR1": 10, "USR2": 12, "TERM": 15}

# $1 is `pod` (the container's first process: a rank), `agent` (the same: it starts ranks) or `rank` (below an agent).
# A pod that was asked has failed: it must not count as done. A rank that was asked ends with 0, as the agent would end
# the others, which may still save. Otherwise the script ends as its program did, by the same signal.
_SCRIPT = r"""
role=$1; shift
asked=
programs() {
    case $(readlink "/proc/$1/exe") in
    */ash | */bash | */busybox | */dash | */ksh | */sh | */zsh)
        for each in $(cat /proc/$1/task/*/children 2>/dev/null); do programs "$each"; done ;;
    *) echo "$1" ;;
    esac
}
handles() {
    caught=$(sed -n 's/^SigCgt:[[:space:]]*//p' "/proc/$1/status" 2>/dev/null)
    [ $((0x${caught:-0} >> (NUMBER - 1) & 1)) = 1 ]
}
ask() {
    [ -z "$asked" ] || return
    asked=1
    if [ "$role" = agent ]; then
        for each in $(cat /proc/$main/task/*/children 2>/dev/null); do kill -TERM "$each" 2>/dev/null; done
        # It would wait for the agents of other pods.
        { while [ -n "$(cat /proc/$main/task/*/children 2>/dev/null)" ]; do sleep 0.2; done; kill -TERM $main; } &
        return
    fi
    found=$(programs $main)
    handling=
    for each in $found; do if handles "$each"; then handling="$handling $each"; fi; done
    # Beside a program that handles it, tee and the like must not end before it.
    for each in ${handling:-$found}; do kill -NUMBER "$each" 2>/dev/null; done
}
"$@" &
main=$!
trap ask TERM
wait $main
status=$?
while kill -0 $main 2>/dev/null; do wait $main; status=$?; done
case $asked$role in 1rank) exit 0 ;; 1*) exit 143 ;; esac
trap - TERM
[ $status -le 128 ] || kill -$((status - 128)) $$
exit $status
"""


def gives_time(job: Job) -> bool:
    """Return whether the ranks of a job get time to save."""
    return bool(job.stop.grace_s) and job.launcher in LAUNCHERS


def wrapped(job: Job, role: str, words: list[str]) -> list[str]:
    """Return a command that runs `words` in this role through the script, where ranks get time to save."""
    if not gives_time(job):
        return words
    script = _SCRIPT.replace("NUMBER", str(_NUMBERS[job.stop.signal])).strip()
    # The cluster expands $(NAME), not $$(NAME).
    return ["sh", "-c", script.replace("$(", "$$("), "save", role, *words]


def grace_period_s(job: Job) -> int | None:
    """Return how long the cluster waits after SIGTERM; None for its own 30 s."""
    if job.launcher not in LAUNCHERS:
        return None
    return job.stop.grace_s + _MARGIN_S if job.stop.grace_s else 1
