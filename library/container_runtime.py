#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Read, configure and verify what a node has for rootless containers of the training user."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: container_runtime
short_description: Read, configure and verify rootless containers of the training user
description: Each step takes its own options and rejects those of the others.
options:
  step:
    description:
      - V(read) reads O(packages) by O(package_manager), ranges of ids, kernel settings, O(files), O(storage) and
        O(free_gib), and O(user_files) with the rights of O(user).
      - V(cdi) writes what C(nvidia-ctk cdi generate) prints to O(path), if driver, toolkit or GPUs have changed since,
        which the first lines of the file tell. A file of somebody else stays. Nothing is written while no driver or no
        toolkit answers.
      - V(configure) writes O(user_files) with the rights of O(user), so that links there lead root nowhere. It makes
        the user's folder in O(storage) below folders that only root can change, and gives it to the user.
      - V(verify) stores an image of the node's own shell, starts a container of O(user) with the flags of jobs and
        O(options), and removes the image. No registry is needed. The container reports its uid, namespaces, limits and
        O(devices), and writes a file in a mounted folder. With O(apptainer), Apptainer does so, too.
    type: str
    choices: [read, cdi, configure, verify]
    required: true
  user: {description: The training user., type: str}
  packages: {description: Packages of the operating system., type: list, elements: str, default: []}
  package_manager: {description: Ansible's fact C(pkg_mgr)., type: str, default: ""}
  files: {description: "Files whose owner, mode and digest are read.", type: list, elements: str, default: []}
  user_files:
    description: Text by name of the files in C(~/.config/containers) of O(user); null for a file that must not exist.
    type: dict
    default: {}
  storage: {description: Folder above the user's images; empty for the user's home., type: str, default: ""}
  free_gib: {description: GiB that must be free before the first image., type: int, default: 0}
  path: {description: The specification., type: path, default: /etc/cdi/nvidia.yaml}
  devices: {description: Paths of devices that the container must see., type: list, elements: str, default: []}
  options:
    description: More options of C(podman run), such as C(--device nvidia.com/gpu=all).
    type: list
    elements: str
    default: []
  apptainer: {description: "Whether Apptainer must run such an image, too.", type: bool, default: false}
attributes:
  check_mode:
    support: full
    description: Returns state and change, and makes no change.
  diff_mode:
    support: full
    description: V(configure) shows each changed file before and after.
extends_documentation_fragment: inventory_name
"""

EXAMPLES = r"""
- name: Read what the node has for containers
  container_runtime:
    step: read
    host: "{{ inventory_hostname }}"
    user: train
    packages: [podman, uidmap]
    package_manager: apt
  register: containers

- name: Describe the GPUs for containers
  container_runtime: {step: cdi, host: "{{ inventory_hostname }}"}
  register: gpus

- name: Keep images on the data disk
  container_runtime:
    step: configure
    host: "{{ inventory_hostname }}"
    user: train
    storage: /data/containers
    user_files:
      storage.conf: "{{ lookup('ansible.builtin.template', 'storage.conf.j2') }}"

- name: Start a container like a job's
  container_runtime: {step: verify, host: "{{ inventory_hostname }}", user: train}
  register: container
"""

RETURN = r"""
state:
  description:
    - >-
      From V(read), C(host); C(name) of the user and C(user), its C(uid), C(gid) and C(home), or null;
      C(package_manager); C(missing_packages), and by name the C(candidates) of apt; C(podman), the output of C(podman
      --version); C(files), attributes by path; C(linger); C(sysctls); C(ranges), by path the new text of files in which
      the user lacks a range, or C(range_fault); C(user_files), the names of those that differ; C(foreign), paths of
      those that the role must not replace; C(storage) (C(path), C(exists), C(file_system), C(free_gib), C(needed_gib),
      C(owner), C(unsafe)).
    - >-
      From V(cdi), C(host); C(path); C(driver) and C(toolkit), the versions, empty if nothing answers; C(driver_output),
      the output of nvidia-smi; C(header), the first lines of the present specification; C(devices), the paths of the
      GPUs; C(exists) and C(due), whether the specification is there and whether it is to be written; C(listed), the
      names of C(nvidia-ctk cdi list).
  returned: read and cdi
  type: dict
paths: {description: The changed paths., returned: configure, type: list, elements: str}
probe:
  description: >-
    C(host) and C(user); C(fault), why nothing was started; C(import) and C(run), each the exit status and the output;
    C(expected), what the container must see; C(written_by), the uid that owns the file which the container wrote, or
    null; C(apptainer), null or C(run) and C(written_by) of Apptainer; C(devices) that it must see; C(sysctls);
    C(unranged), the files in which the user has no range of ids.
  returned: verify
  type: dict
"""

import pwd
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule, _load_params
from ansible.module_utils.trainyard_node.machine import as_user
from ansible.module_utils.trainyard_node.machine.owned_file import difference, replace
from ansible.module_utils.trainyard_node.machine.private import PrivateError
from ansible.module_utils.trainyard_node.machine.step_options import options_of_step
from ansible.module_utils.trainyard_node.machine.tree import Tree
from ansible.module_utils.trainyard_node.nvidia import cdi_specification
from ansible.module_utils.trainyard_node.software import container_setup

HOST = {"host": {"type": "str", "required": True}}
USER = {**HOST, "user": {"type": "str", "required": True}}
USER_FILES = {"user_files": {"type": "dict", "default": {}}, "storage": {"type": "str", "default": ""}}
TEXTS = {"type": "list", "elements": "str", "default": []}
STEPS = {
    "read": {
        **USER,
        **USER_FILES,
        "packages": TEXTS,
        "package_manager": {"type": "str", "default": ""},
        "files": TEXTS,
        "free_gib": {"type": "int", "default": 0},
    },
    "cdi": {**HOST, "path": {"type": "path", "default": "/etc/cdi/nvidia.yaml"}},
    "configure": {**USER, **USER_FILES},
    "verify": {**USER, "devices": TEXTS, "options": TEXTS, "apptainer": {"type": "bool", "default": False}},
}


def read(module: AnsibleModule) -> None:
    """Read what the node has."""
    host, user = module.params["host"], module.params["user"]
    try:
        state = container_setup.read_state(Tree(), module.params)
    except (as_user.JobError, OSError) as error:
        module.fail_json(msg=f"{host}: the settings of {user} cannot be read: {error}. Check the user's home.")
    module.exit_json(changed=False, state=state)


def cdi(module: AnsibleModule) -> None:
    """Describe the GPUs."""
    host, path = module.params["host"], module.params["path"]
    state = cdi_specification.read_state(Tree(), host, path)
    changed = bool(state["due"] and state["driver"] and state["toolkit"])
    if changed and not module.check_mode:
        try:
            text = cdi_specification.generate(Tree(), state["header"])
            Path(path).parent.mkdir(mode=0o755, parents=True, exist_ok=True)
            replace(module, Path(path), text.encode())
            # Podman of an ordinary user reads it.
            Path(path).chmod(0o644)
        except (cdi_specification.GenerateError, OSError) as error:
            module.fail_json(msg=f"{host}: nvidia-ctk cannot describe the GPUs: {error}. Run nvidia-smi there.")
        state = cdi_specification.read_state(Tree(), host, path)
    module.exit_json(changed=changed, state=state)


def configure(module: AnsibleModule) -> None:
    """Write the user's settings, and make the folder of its images."""
    user, files = module.params["user"], module.params["user_files"]
    storage = f"{module.params['storage']}/{user}" if module.params["storage"] else ""
    try:
        owner, home = as_user.named(user), pwd.getpwnam(user).pw_dir
        before = as_user.run(owner, container_setup.read_user_files, home, list(files))
        changed = {name: text for name, text in files.items() if text != before[name]}
        missing = bool(storage) and not Path(storage).exists()
        if changed and not module.check_mode:
            as_user.run(owner, container_setup.write_user_files, home, changed)
        if missing and not module.check_mode:
            container_setup.make_storage(user, storage)
    except (as_user.JobError, OSError, PrivateError) as error:
        module.fail_json(msg=f"the settings of {user} cannot be written: {error}")
    places = {name: Path(home, ".config/containers", name) for name in changed}
    diff = [difference(path, before[name], files[name] or "") for name, path in places.items()]
    diff += [difference(Path(storage), "", "(folder)\n")] if missing else []
    paths = [*map(str, places.values()), *([storage] if missing else [])]
    module.exit_json(changed=bool(paths), paths=paths, diff=diff)


def verify(module: AnsibleModule) -> None:
    """Start a container like a job's."""
    given = (module.params[name] for name in ("user", "host", "devices", "options", "apptainer"))
    module.exit_json(changed=False, probe=container_setup.probe(*given))


def main() -> None:
    """Run the step."""
    module = AnsibleModule(argument_spec=options_of_step(STEPS, _load_params()), supports_check_mode=True)
    {"read": read, "cdi": cdi, "configure": configure, "verify": verify}[module.params["step"]](module)


if __name__ == "__main__":
    main()
