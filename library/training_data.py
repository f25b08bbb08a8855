#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Ansible module training_data: place a data set in a folder, and detect damage to it."""

from __future__ import annotations

DOCUMENTATION = r"""
module: training_data
short_description: Place a data set for the example training
description:
  - Unpacks CIFAR-10's archive, extracts scikit-learn's handwritten digits from its wheel, or generates records in
    CIFAR-10's binary format.
  - The folder appears when it is complete, with a manifest of sizes and sha256 sums. A later run compares the files
    with it, and places a damaged data set again. Never touches a folder that this module did not make.
  - Where hosts share the folder, one of them places the data set, while the others wait and report no change.
options:
  path:
    description: Folder of the data set.
    type: path
    required: true
  kind:
    description: Which data set.
    type: str
    choices: [digits, cifar10, generated]
    required: true
  source:
    description: >-
      File on the node for V(cifar10) (the archive) or V(digits) (scikit-learn's wheel, or C(digits.csv.gz)).
    type: path
  format:
    description: Format of CIFAR-10's archive.
    type: str
    choices: [binary, python]
    default: binary
  sha256:
    description: sha256 of CIFAR-10's archive.
    type: str
    default: ""
  seed:
    description: Seed of the records of V(generated).
    type: int
    default: 1
  train_records:
    description: Training records of V(generated).
    type: int
    default: 50000
  test_records:
    description: Test records of V(generated).
    type: int
    default: 10000
  owner:
    description: >-
      Owner of the folder when the module runs as root. In a folder that others can change, it acts as the owner.
    type: str
    default: ""
  records:
    description: Folder of root alone, for RV(work).
    type: path
    default: /var/lib/trainyard-root
  min_free_mb:
    description: Free disk space in MB (10^6 bytes) without which nothing is placed.
    type: int
    default: 0
  run:
    description: >-
      A mark of one run of a playbook. With it nothing is placed; the first of the hosts that share the folder reserves
      that, so that it alone fetches O(source).
    type: str
    default: ""
attributes:
  check_mode:
    support: full
  diff_mode:
    support: none
"""

EXAMPLES = r"""
- name: Place generated records
  training_data:
    path: /var/lib/trainyard/data/generated
    kind: generated
    train_records: 2000
    test_records: 500
"""

RETURN = r"""
reasons:
  description: Reasons to place the data set, in words; empty when it is complete.
  returned: success
  type: list
  elements: str
installed:
  description: The name of the data set (C(packages)), and the size of its files (C(bytes)).
  returned: when it was placed
  type: dict
  sample: {packages: [the data set digits], bytes: 57523}
placed_by:
  description: The other host of the O(run) that places the data set; empty if this one does.
  returned: success
  type: str
work:
  description: Folder for a download of O(source).
  returned: success
  type: str
"""

import os
from functools import partial
from pathlib import Path
from typing import Any, Callable

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.trainyard.software import datasets
from ansible.module_utils.trainyard_node.machine import as_user, install_lock
from ansible.module_utils.trainyard_node.software import dataset_files
from ansible.module_utils.trainyard_node.software.build_prefix import free_bytes

# Reading and unpacking take minutes on a slow disk, in seconds; so long another host waits for that.
LOCK_S = 3600
LIMIT_S = 2 * LOCK_S

ARGUMENTS: dict[str, Any] = {
    "path": {"type": "path", "required": True},
    "kind": {"type": "str", "choices": list(datasets.KINDS), "required": True},
    "source": {"type": "path"},
    "format": {"type": "str", "choices": list(datasets.FORMATS), "default": "binary"},
    "sha256": {"type": "str", "default": ""},
    "seed": {"type": "int", "default": 1},
    "train_records": {"type": "int", "default": datasets.GENERATED_TRAIN},
    "test_records": {"type": "int", "default": datasets.GENERATED_TEST},
    "owner": {"type": "str", "default": ""},
    "records": {"type": "path", "default": "/var/lib/trainyard-root"},
    "min_free_mb": {"type": "int", "default": 0},
    "run": {"type": "str", "default": ""},
}


def filler(params: dict[str, Any]) -> Callable[[Path], None]:
    """Check the source of the data set, and return the function that writes its files."""
    if params["kind"] == "generated":
        return partial(dataset_files.generate, params["seed"], params["train_records"], params["test_records"])
    if params["source"] is None:
        raise dataset_files.DatasetFailure(f"data set {params['kind']} is placed from a file: name it as source")
    source = Path(params["source"])
    if not source.is_file():
        raise dataset_files.DatasetFailure(f"there is no file {source} to place data set {params['kind']} from")
    if params["kind"] == "digits":
        return partial(dataset_files.take_digits, source)
    dataset_files.check_sha256(source, params["sha256"])
    return partial(dataset_files.unpack_cifar10, source, params["format"])


def examined(folder: Path, owner: str, params: dict[str, Any]) -> list[str]:
    """Return why the data set must be placed. Raise DatasetFailure where it cannot."""
    reasons = dataset_files.examine(folder, params["kind"], dataset_files.identity(params), owner)
    free = free_bytes(folder)
    # What another host is placing there takes that space for this one, too.
    if reasons and free < params["min_free_mb"] * 10**6 and not install_lock.holder(folder):
        raise dataset_files.DatasetFailure(
            f"{free // 10**6} MB are free for {folder}, {params['min_free_mb']} MB are needed; make room, or choose "
            "another folder"
        )
    if reasons and owner:
        dataset_files.account(owner)
    return reasons


def check_and_place(folder: Path, owner: str, params: dict[str, Any], places: bool) -> tuple[list[str], int, str]:
    """Place the data set where it differs, or with `run` reserve that.

    Return the reasons, the bytes of what was placed, and the host of this run that places it instead of this one.
    """
    reasons = examined(folder, owner, params)
    if not reasons or not places:
        return reasons, 0, ""
    os.umask(0o022)
    with install_lock.held(folder, LOCK_S) as turn:
        if turn.made:
            # From now on this is done with the owner's rights, who needs the lock then.
            dataset_files.give([install_lock.path_of(folder), *turn.made], owner)
        # Another host that shares the disk may have placed it meanwhile.
        reasons = examined(folder, owner, params)
        if not reasons:
            return [], 0, ""
        if params["run"]:
            before = turn.before
            if before and before.mark == params["run"] and before.host != install_lock.HOST:
                return reasons, 0, before.host
            turn.mark = params["run"]
            return reasons, 0, ""
        source = dataset_files.identity(params)
        try:
            dataset_files.place(folder, params["kind"], source, owner, filler(params))
        except PermissionError as error:
            raise dataset_files.DatasetFailure(
                f"{error}; root changes nothing for others in a folder that they can change. Give {folder} to "
                f"{owner or 'the user of this run'}, or {folder.parent} to root"
            ) from error
    return reasons, sum(file.stat().st_size for file in folder.rglob("*")), ""


def with_rights(folder: Path, owner: str, params: dict[str, Any], places: bool) -> tuple[list[str], int, str]:
    """Check and place the data set with the rights that its folder asks for."""
    rights = dataset_files.whose_rights(folder, owner)
    try:
        done = as_user.run(rights, check_and_place, folder, owner, params, places, limit_s=LIMIT_S)
    except as_user.JobError:
        # Another host that shares the folder may have made it for its owner meanwhile.
        again = dataset_files.whose_rights(folder, owner)
        if again == rights:
            raise
        done = as_user.run(again, check_and_place, folder, owner, params, places, limit_s=LIMIT_S)
    reasons, size, other = done
    return reasons, size, other


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec=ARGUMENTS, required_if=[("kind", "cifar10", ["sha256"])], supports_check_mode=True
    )
    params = module.params
    folder = Path(params["path"])
    as_root = os.geteuid() == 0
    work = f"{params['records']}/dataset-{folder.name}"
    if not as_root:
        work = f"{folder.parent}/.download-{folder.name}-{install_lock.HOST}"
    try:
        owner = params["owner"] if as_root else ""
        reasons, size, other = with_rights(folder, owner, params, not module.check_mode)
    except as_user.JobError as error:
        module.fail_json(msg=str(error))
    installed = {"installed": {"packages": [f"the data set {folder.name}"], "bytes": size}} if size else {}
    changed = bool(reasons) and not params["run"]
    module.exit_json(changed=changed, reasons=reasons, work=work, placed_by=other, **installed)


if __name__ == "__main__":
    main()
