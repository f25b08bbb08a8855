# SPDX-License-Identifier: Apache-2.0
"""Plan the verifications that nobody watches: who runs which files of this controller, and who else changes them."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ...trainyard.base.adhoc import inventory_options, playbook
from ...trainyard.verify import schedule
from ...trainyard_node.job.run.ranks.units import systemd_command
from ...trainyard_node.machine.private import Place, others_write, weak_place
from ...trainyard_node.machine.users import user_name


def plan(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the result of the step schedule of the action verify; `inventory` are the sources."""
    uid, folder, every = os.geteuid(), str(Path(given["folder"]).absolute()), given["every"]
    # The inventory may ask for a soak, which the light phases do not have.
    variables = {"verify_phases": list(schedule.LIGHT), "verify_soak": "", "trainyard_runs": given["runs"]}
    words = shlex.split(playbook("playbooks/verify.yml", inventory_options(given["inventory"]), variables))
    program, user = Path(sys.executable).with_name(words[0]), user_name(uid) or str(uid)
    command, name = [str(program), *words[1:]], schedule.unit_name(given["cluster"])
    inventory = [Path(source) for source in given["inventory"] if "," not in source]
    # Ansible reads these beside an inventory, templates included.
    beside = [source.parent / name for source in inventory for name in ("group_vars", "host_vars")]
    weak = changeable([program, Path(sys.executable), Path(folder), *inventory, *filter(Path.exists, beside)], uid)
    found = schedule.findings(user, str(weak or ""), not given["timer"] or Path(given["systemd"]).is_dir())
    files = schedule.units(name, user, folder, systemd_command(command), every)
    line = schedule.cron_line(folder, command, every)
    return {"findings": [each.as_dict() for each in found], "name": name, "files": files, "line": line, "user": user}


def changeable(paths: Iterable[Path], uid: int) -> Place | None:
    """Return the first place on the way to `paths`, or in them, that others than root and `uid` can change."""
    for path in paths:
        if weak := weak_place(path.absolute(), uid):
            return weak
        for here, folders, files in os.walk(path):
            # Nothing runs hidden files, nor the runs of jobs, which hold files of their users.
            folders[:] = [name for name in folders if not name.startswith(".") and name != "runs"]
            for inside in (Path(here) / name for name in (*folders, *files)):
                state = inside.lstat()
                if state.st_uid not in (0, uid) or (not inside.is_symlink() and others_write(state, uid)):
                    return Place(inside, state.st_uid, state.st_mode)
    return None
