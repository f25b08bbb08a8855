# SPDX-License-Identifier: Apache-2.0
"""The shape of what nodes of a Slurm cluster answer to the role (base/received.py)."""

from __future__ import annotations

from ..base.shapes import MAYBE_TEXT, Raw, Text

# Output of a program, or a file in base64.
_OUTPUT = Raw(1 << 20)
# By the variables that tasks register; configuration.nodes_of reads them.
NODE = {
    "?ansible_host": object,
    "?ansible_facts": {"?hostname": Text(255)},
    "?__slurm_conf": {"?content": _OUTPUT},
    **{name: {"?stdout": _OUTPUT} for name in ("?__slurm_cgroups", "?__slurm_described", "?__slurm_version")},
    "?__slurm_accelerators": {"?accelerators": {"?vendor": MAYBE_TEXT, "?devices": [{"index": int}]}},
}
