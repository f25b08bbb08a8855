# SPDX-License-Identifier: Apache-2.0
"""Lines of a rank's start script that hold its exit back from a launcher that would end all other ranks.

mpirun and OneFlow's launch module end all ranks as soon as they learn that one has failed. So the script of a failed
rank writes that to the launcher's log, which the monitor reads (evidence/held_exits.py), and waits: the
monitor asks the others to end, and ends the launcher when they have saved.
"""

from __future__ import annotations

from ..file.job import Job

# The script lies in the part of the job's folder that its node writes. Its text is the same on all nodes.
HERE = "here=${0%/*}"
# How long a script waits for its monitor to ask the other ranks to end, in seconds. A monitor that takes longer does
# not know of the failure: the launcher's log is on a full disk.
UNKNOWN_S = 15

_HOLD = """\
# The launcher must not learn of this exit while other ranks may save (job_stop_grace): it would end them at once.
if [ $status -ne 0 ]; then
    echo "trainyard: rank {rank} holds its exit back" >&2
    left={tries}
    until [ -d {asked} ] || [ $left -eq 0 ]; do
        sleep 0.2
        left=$((left - 1))
    done
fi
while [ -d {asked} ]; do sleep 0.2; done
"""


def hold_exit(job: Job, rank: str) -> str:
    """Return these lines, which follow `status=$?` and HERE; `rank` is the shell's word for it.

    No time to save needs none.
    """
    if not job.stop.grace_s:
        return ""
    return _HOLD.format(rank=rank, tries=5 * UNKNOWN_S, asked='"$here"/asked')
