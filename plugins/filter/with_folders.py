# SPDX-License-Identifier: Apache-2.0
"""Filter plugin with_folders: files below a folder, with the folders that they lie in."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ansible.module_utils.trainyard.software import files

DOCUMENTATION = r"""
name: with_folders
short_description: Files below a folder, with the folders that they lie in
description:
  - As M(node_files) takes them.
options:
  _input:
    description: Texts by path, relative to the folder.
    type: dict
    required: true
  root:
    description: The folder.
    type: path
    required: true
author: trainyard
"""

EXAMPLES = r"""
- name: Write them
  node_files:
    files: "{{ {'a/b.py': 'x = 1'} | with_folders('/usr/local/lib/mine') }}"
"""

RETURN = r"""
_value:
  description: The folders, then the files.
  type: list
  elements: dict
  sample: [{path: /usr/local/lib/mine/a}, {path: /usr/local/lib/mine/a/b.py, content: x = 1}]
"""


def with_folders(texts: Mapping[str, str], root: str) -> list[dict[str, str]]:
    """Return the entries of the folders and files."""
    return files.with_folders(texts, root)


class FilterModule:
    """See the module's docstring."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Return the filter by its name."""
        return {"with_folders": with_folders}
