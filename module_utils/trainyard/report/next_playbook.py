# SPDX-License-Identifier: Apache-2.0
"""Name what follows a playbook that has succeeded; next_step.py does that for jobs."""

from __future__ import annotations

from ..base.adhoc import playbook
from ..base.redaction import HIDDEN

# By the name of a playbook: the words, and the next one, or "". A playbook that is not here has a text of its own.
_NEXT = {
    "validate.yml": ("install what is missing", "site.yml"),
    "provision.yml": ("verify that the nodes can train", "playbooks/verify.yml"),
    "nvidia_upgrade.yml": ("verify that the nodes can train", "playbooks/verify.yml"),
    "nvidia_reboot.yml": ("verify that the nodes can train", "playbooks/verify.yml"),
    "collective_check.yml": ("measure the bandwidth", "playbooks/collective_benchmark.yml"),
    "collective_benchmark.yml": ("measure each pair of nodes", "playbooks/pair_check.yml"),
    "pair_check.yml": ("verify all else", "playbooks/verify.yml"),
    "lock.yml": ("install by the lock (for hosts without internet: playbooks/bundle.yml)", "site.yml"),
    "bundle.yml": ("install from it, on a controller that has it: add -e trainyard_bundle=FOLDER", "site.yml"),
    "bundle_use.yml": ("install from it", "site.yml"),
    "image.yml": ("run a job in it (job_image)", "launch.yml"),
    "jobs.yml": ("the state of a job: add -e job_id=NAME", "playbooks/status.yml"),
    "clean.yml": ("see what is left", "playbooks/jobs.yml"),
    "debug.yml": ("attach the archive to the issue", ""),
    "remove.yml": ("install again", "site.yml"),
    **dict.fromkeys(("drill.yml", "bisect.yml"), ("all jobs, with their pages", "playbooks/jobs.yml")),
    "schedule.yml": ("all verifications, with their reports", "playbooks/jobs.yml"),
}


# Those with their own text that --check does not change for good.
_ALSO = frozenset({"site.yml", "launch.yml", "hostfile.yml", "rank_table.yml", "stop.yml"})
# Options of a preview.
PREVIEW = frozenset({"--check", "-C", "--diff", "-D"})


def after(name: str, inventory: str, preview_of: str = "") -> str:
    """Return the lines about what follows a playbook; "" for those with their own text.

    `preview_of` is the command without --check that this one has previewed, "" where it was no preview.
    """
    if preview_of and (name in _NEXT or name in _ALSO):
        done = "the same without --check" if HIDDEN in preview_of else f"do it\n      {preview_of}"
        return f"next  {done}"
    words, book = _NEXT.get(name, ("", ""))
    if not words:
        return ""
    return f"next  {words}\n      {playbook(book, inventory)}" if book else f"next  {words}"
