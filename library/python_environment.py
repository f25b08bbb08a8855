#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Ansible module python_environment: a virtual environment with pinned packages, made, repaired and verified."""

from __future__ import annotations

DOCUMENTATION = r"""
module: python_environment
short_description: Make a Python virtual environment with pinned packages, and verify it
description:
  - Makes the environment where it is missing, unfinished or of another Python, installs missing packages, runs
    C(pip check), compiles the packages, and runs O(verify_script). Does not run pip where nothing differs.
  - Never touches a folder at O(path) that this module did not make.
  - Where hosts share the folder, one of them installs. The others wait for it, run O(verify_script), and report no
    change.
options:
  path:
    description: The environment.
    type: path
    required: true
  interpreter:
    description: The Python of the environment, a path or a name on PATH.
    type: str
    default: python3
  python_min:
    description: Oldest Python (V(3.10)) that the packages support. Empty for any.
    type: str
    default: ""
  python_max:
    description: Newest Python (V(3.14)) that the packages support. Empty for any.
    type: str
    default: ""
  packages:
    description: >-
      Requirements of the form C(name==version), with extras and a C(python_version) marker where needed. If one outside
      O(lock) has C(--hash=sha256:...), all of those and their dependencies need hashes.
    type: list
    elements: str
    required: true
  constraints:
    description: Lines of a pip constraints file, such as pins of the packages' own dependencies.
    type: list
    elements: str
    default: []
  lock:
    description: >-
      Text of a requirements file with hashes, as C(uv pip compile --generate-hashes) and pip-compile write it. Packages
      that it has in the requested version, and their dependencies, are installed by its hashes, from wheels alone. The
      others follow, constrained to its versions. A hash in O(packages) precedes those of the file.
    type: str
    default: ""
  index_url:
    description: Package index instead of the one in the machine's pip configuration.
    type: str
    default: ""
  extra_index_urls:
    description: Further package indexes.
    type: list
    elements: str
    default: []
  find_links:
    description: Folders of wheels on the node, or pages that link to them.
    type: list
    elements: str
    default: []
  no_index:
    description: Use O(find_links) alone.
    type: bool
    default: false
  pip_args:
    description: >-
      Further arguments of C(pip install), after C(--only-binary=:all:). C(--no-binary=NAME) allows the source archive
      of a package, which runs its own code when it is installed.
    type: list
    elements: str
    default: []
  wheels:
    description: >-
      Addresses of wheels by package name, for O(packages) that no index has, each with its sum, such as
      C(https://mirror.example.org/mindspore-2.2.14-cp39-cp39-linux_x86_64.whl#sha256=...). A wheel with another sum
      replaces the installed one.
    type: dict
    default: {}
  libraries:
    description: >-
      Requirements of the packages on the system: shared libraries such as C(libgomp.so.1), programs such as C(c++), and
      C(Python.h), the headers of O(interpreter).
    type: list
    elements: str
    default: []
  min_free_mb:
    description: Free disk space in MB (10^6 bytes) without which nothing is installed.
    type: int
    default: 0
  verify_script:
    description: >-
      A Python program that must succeed before the environment counts as complete. Its last line is a JSON object. It
      runs again only when the program or the packages have changed.
    type: str
    default: ""
  verify_user:
    description: User who runs the check when the module runs as root. Empty for root.
    type: str
    default: ""
  verify_timeout:
    description: Seconds after which the check has failed.
    type: int
    default: 180
  verify_environment:
    description: Further environment of the check.
    type: dict
    default: {}
  verify:
    description: Run the check even when it has succeeded before.
    type: bool
    default: false
attributes:
  check_mode:
    support: full
  diff_mode:
    support: full
"""

EXAMPLES = r"""
- name: An environment with numpy
  python_environment:
    path: /opt/trainyard/venvs/tools
    packages: [numpy==2.4.6]
    min_free_mb: 200
"""

RETURN = r"""
python:
  description: The environment's interpreter.
  returned: success
  type: str
version:
  description: Version of its Python.
  returned: success
  type: str
can_make_environments:
  description: Whether that Python has the modules venv and ensurepip.
  returned: success
  type: bool
packages:
  description: Installed versions by normal name.
  returned: success
  type: dict
reasons:
  description: Reasons for a change, in words.
  returned: success
  type: list
  elements: str
lacking:
  description: The O(libraries) that are missing on the system.
  returned: success
  type: list
  elements: str
installed:
  description: >-
    The new packages with their versions (C(packages), the requested ones first), and the size of their files
    (C(bytes)).
  returned: when something was installed
  type: dict
  sample: {packages: [torch 2.9.0, filelock 3.20.0], bytes: 851443712}
verified:
  description: Output of the last successful check.
  returned: when there is O(verify_script)
  type: dict
"""

from typing import Any
from urllib.parse import urlsplit

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.trainyard_node.machine import install_lock
from ansible.module_utils.trainyard_node.software import python_environment
from ansible.module_utils.trainyard_node.software.environment_work import Work

ARGUMENTS: dict[str, Any] = {
    "path": {"type": "path", "required": True},
    "interpreter": {"type": "str", "default": "python3"},
    "python_min": {"type": "str", "default": ""},
    "python_max": {"type": "str", "default": ""},
    "packages": {"type": "list", "elements": "str", "required": True},
    "constraints": {"type": "list", "elements": "str", "default": []},
    "lock": {"type": "str", "default": ""},
    "index_url": {"type": "str", "default": ""},
    "extra_index_urls": {"type": "list", "elements": "str", "default": []},
    "find_links": {"type": "list", "elements": "str", "default": []},
    "no_index": {"type": "bool", "default": False},
    "pip_args": {"type": "list", "elements": "str", "default": []},
    "wheels": {"type": "dict", "default": {}},
    "libraries": {"type": "list", "elements": "str", "default": []},
    "min_free_mb": {"type": "int", "default": 0},
    "verify_script": {"type": "str", "default": ""},
    "verify_user": {"type": "str", "default": ""},
    "verify_timeout": {"type": "int", "default": 180},
    "verify_environment": {"type": "dict", "default": {}},
    "verify": {"type": "bool", "default": False},
}


def hide_passwords(module: AnsibleModule) -> None:
    """Hide passwords in addresses of indexes from everything that is returned."""
    given = module.params
    addresses = [given["index_url"], *given["extra_index_urls"], *given["find_links"], *given["wheels"].values()]
    for url in addresses:
        password = urlsplit(url).password
        if password:
            module.no_log_values.add(password)


def examined(module: AnsibleModule) -> Work:
    """Return what there is to do; fail with what prevents it."""
    work = Work(module.params)
    if work.findings:
        texts = [f"{finding.found}; {finding.action}" for finding in work.findings]
        module.fail_json(msg="; ".join(texts), findings=[finding.as_dict() for finding in work.findings])
    return work


def done(module: AnsibleModule) -> tuple[Work, str]:
    """Bring the environment to what is requested; return that, and the packages before."""
    work = examined(module)
    if not work.install:
        before = work.lines(dict(work.state.packages))
        work.do()
        return work, before
    with install_lock.held(work.path):
        # Another host that shares the disk, or another controller, may have installed meanwhile. The environment may
        # still not work here, with this host's driver and libraries.
        work = examined(module)
        before = work.lines(dict(work.state.packages))
        work.do(again=True)
    return work, before


def main() -> None:
    """Run the module."""
    module = AnsibleModule(argument_spec=ARGUMENTS, supports_check_mode=True)
    hide_passwords(module)
    try:
        if module.check_mode:
            work = examined(module)
            before = work.lines(dict(work.state.packages))
            after = before if not work.install else "".join(f"{pin.name}=={pin.version}\n" for pin in work.pins)
        else:
            work, before = done(module)
            after = work.lines(dict(work.state.packages))
    except (python_environment.EnvironmentFailure, install_lock.InstallLockError) as error:
        module.fail_json(msg=str(error))
    header = f"{work.path} (packages)"
    module.exit_json(
        **work.result(), diff={"before": before, "after": after, "before_header": header, "after_header": header}
    )


if __name__ == "__main__":
    main()
