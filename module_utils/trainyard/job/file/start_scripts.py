# SPDX-License-Identifier: Apache-2.0
"""Read start scripts: do they put processes in the background, and wait for them? On the nodes, too."""

from __future__ import annotations

import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

# `&` behind a command, and no part of &&, &>, 2>&1 or |&.
BACKGROUND = r"(?<![&><|])&(?=\s|$|\))"
# What to append to a script that does not wait. `wait` alone succeeds, even if no process could start.
WAIT = "`wait $! && wait`"
_BACKGROUND = re.compile(BACKGROUND, re.MULTILINE)


def waits_for_nothing(text: str) -> bool:
    """Tell whether a start script puts processes in the background, and neither waits for any nor ends one."""
    code = _code(text)
    return bool(_BACKGROUND.search(code)) and not re.search(r"\b(?:wait|kill)\b", code)


def forgets_status(text: str) -> bool:
    """Tell whether a start script ends by a bare `wait` for its background: that is 0, however the processes ended."""
    code = _code(text)
    return bool(_BACKGROUND.search(code)) and re.search(r"(?:^|[;&\n])\s*wait\s*;?\s*$", code) is not None


def _code(text: str) -> str:
    return re.sub(r"(?m)(?:^|\s)#.*$", "", text)


def code_in(command: Sequence[str]) -> list[str]:
    """Return the texts that a command gives to a shell by itself: bash -c TEXT."""
    return [
        after
        for shell, word, after in zip(command, command[1:], command[2:])
        if re.fullmatch("-[a-z]*c", word) and re.fullmatch(r"(?:\S*/)?(?:a|ba|da|k|z)?sh", shell)
    ]
