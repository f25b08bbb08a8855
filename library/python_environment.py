#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Ansible module python_environment: a virtual environment with pinned packages, made, repaired and verified."""

from __future__ import annotations

DOCUMENTATION = r"""
module: python_environment
short_description: Make a Python virtual environment with pinned packages, and prove it
description:
  - Makes the environment where it is missing, unfinished or of another Python, installs what is missing of the pinned
    packages, checks that they fit together, compiles them, and runs a proof.
  - When everything is as wanted, one short call finds that out and pip is not run.
  - A folder at O(path) that this module did not make is never touched.
options:
  path:
    description: The environment.
    type: path
    required: true
  interpreter:
    description: The Python to make it from, a path or a name on PATH.
    type: str
    default: python3
  python_min:
    description: Least Python (V(3.10)) that the packages support. Empty for any.
    type: str
    default: ""
  python_max:
    description: Newest Python (V(3.14)) that the packages support. Empty for any.
    type: str
    default: ""
  packages:
    description: >-
      Requirements of the form C(name==version), with extras and a C(python_version) marker where needed. With
      C(--hash=sha256:...) at one of them that O(lock) does not have, pip wants it at all of those, also at what they
      depend on.
    type: list
    elements: str
    required: true
  constraints:
    description: Lines of a pip constraints file, such as pins of the packages' own dependencies.
    type: list
    elements: str
    default: []
  lock:
    description:
      - Text of a requirements file with hashes, as C(uv pip compile --generate-hashes) and pip-compile write it. Of
        O(packages) those that it has in this very version, and all they need, are installed by its hashes, from wheels
        alone. The others are installed after that, kept to the versions of the file; so is what O(constraints) or
        O(packages) have in another version.
      - A hash at one of O(packages) goes before those of the file.
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
    description: Take packages from O(find_links) only.
    type: bool
    default: false
  pip_args:
    description: >-
      Further arguments of C(pip install), after C(--only-binary=:all:). C(--no-binary=NAME) takes a package from its
      source archive, which runs code of its own then.
    type: list
    elements: str
    default: []
  wheels:
    description:
      - Addresses of wheels by name of the package, for packages of O(packages) that no index has, each with its sum as
        in C(https://mirror.example.org/mindspore-2.2.14-cp39-cp39-linux_x86_64.whl#sha256=...). pip checks the sum.
      - Another sum than that of the wheel that was installed replaces it, as a version tells nothing of the build.
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
      A Python program that the environment must run successfully before it counts as whole. The last line that it
      prints is a JSON object. Run again only when the program or the packages have changed.
    type: str
    default: ""
  verify_user:
    description: Who runs the proof when the module runs as root. Empty for root itself.
    type: str
    default: ""
  verify_timeout:
    description: Seconds after which a proof has failed.
    type: int
    default: 180
  verify_environment:
    description: Further environment of the proof, such as the search path of an accelerator's libraries.
    type: dict
    default: {}
  verify:
    description: Run the proof even when it has succeeded before.
    type: bool
    default: false
attributes:
  check_mode:
    support: full
    description: Says what would change, also where there is no environment yet. Refuses what would be refused.
  diff_mode:
    support: full
"""

EXAMPLES = r"""
- name: An environment with numpy
  python_environment:
    path: /opt/trainyard/venvs/tools
    packages: [numpy==2.4.6]
    min_free_mb: 200

- name: From a folder of wheels, without any network
  python_environment:
    path: /opt/trainyard/venvs/tools
    packages: [numpy==2.4.6]
    find_links: [/srv/wheels]
    no_index: true
"""

RETURN = r"""
python:
  description: The environment's interpreter.
  returned: success
  type: str
  sample: /opt/trainyard/venvs/tools/bin/python
version:
  description: Version of the Python it is or would be made from.
  returned: success
  type: str
  sample: 3.11.2
can_make_environments:
  description: Whether that Python has the modules venv and ensurepip, which Debian packs apart.
  returned: success
  type: bool
packages:
  description: What is installed, by normal name.
  returned: success
  type: dict
  sample: {numpy: 2.4.6}
reasons:
  description: Why something was or would be changed, in words.
  returned: success
  type: list
  elements: str
  sample: [numpy is 2.3.0, wanted 2.4.6]
lacking:
  description: Those of O(libraries) that the system does not have.
  returned: success
  type: list
  elements: str
verified:
  description: What the proof printed when it last succeeded.
  returned: when there is a proof
  type: dict
"""

from typing import Any
from urllib.parse import urlsplit

from ansible.module_utils.basic import AnsibleModule
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
    """Keep passwords in addresses of indexes out of everything that is returned."""
    given = module.params
    addresses = [given["index_url"], *given["extra_index_urls"], *given["find_links"], *given["wheels"].values()]
    for url in addresses:
        password = urlsplit(url).password
        if password:
            module.no_log_values.add(password)


def main() -> None:
    """Run the module."""
    module = AnsibleModule(argument_spec=ARGUMENTS, supports_check_mode=True)
    hide_passwords(module)
    try:
        work = Work(module.params)
        if work.findings:
            said = [f"{finding.found}; {finding.action}" for finding in work.findings]
            module.fail_json(msg="; ".join(said), findings=[finding.as_dict() for finding in work.findings])
        before = work.lines(dict(work.state.packages))
        if module.check_mode:
            wanted = before if not work.install else "".join(f"{pin.name}=={pin.version}\n" for pin in work.pins)
        else:
            work.do()
            wanted = work.lines(dict(work.state.packages))
    except python_environment.EnvironmentFailure as error:
        module.fail_json(msg=str(error))
    header = f"{work.path} (packages)"
    module.exit_json(
        **work.result(), diff={"before": before, "after": wanted, "before_header": header, "after_header": header}
    )


if __name__ == "__main__":
    main()
