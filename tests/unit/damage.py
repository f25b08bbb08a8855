"""Damage JSON files as disks, editors and other programs do, for tests of what reads them back."""

from __future__ import annotations

import copy
import json
import random

SEED = 47
DEEP = "[" * 100_000
# Stands for a list that is nested deeply.
NESTED = "(nested)"
# Other values than those that stand there. Python writes and reads NaN and Infinity, which are no JSON.
VALUES = (
    *(None, True, False, -1, 0, 7, 2**70, 0.5, 1e300, float("nan"), float("inf")),
    *("", "x", "../../etc", "a\x1b[2J\nb", "\ud800", "7" * 5000),
    *([], [None], [{}], ["x"], {}, {"a": []}, {"host": 7}, NESTED),
)
HUGE = "9" * 4400


def damaged(text, count=300, seed=SEED):
    """Yield this many damaged contents of the file, as bytes, always the same."""
    choose = random.Random(seed)  # noqa: S311
    for number in range(count):
        if number % 8 == 0:
            yield _text_damaged(text, choose)
            continue
        # A file of a JSON object alone is changed inside.
        changed = [json.loads(text)]
        for _ in range(choose.choice((1, 1, 1, 3))):
            _change(changed, choose)
        nested = json.dumps(changed[0]).replace(json.dumps(NESTED), "[" * 500 + "]" * 500)
        yield nested.encode()


def _text_damaged(text, choose):
    """Return the text cut, doubled, with bytes that are no text, nested deeply, or with a huge number."""
    at = choose.randrange(len(text) + 1)
    kinds = (b"", b"\x00" * 20, b"\xff\xfe", DEEP.encode(), b"{", HUGE.encode(), text.encode())
    kind = choose.choice(kinds)
    end = choose.choice((at, len(text)))
    return text[:at].encode() + kind + text[end:].encode()


def _change(content, choose):
    """Change one place: delete it, replace or double it, or add another name."""
    place, key = content, 0
    while place[key] and isinstance(place[key], (dict, list)):
        # Fields near the root are chosen as often as the many values deep in a list of nodes.
        if place is not content and choose.random() < 0.3:
            break
        place = place[key]
        key = choose.choice(list(place) if isinstance(place, dict) else range(len(place)))
    kind = choose.choice(("delete", "value", "value", "value", "double", "more"))
    if kind == "delete" and place is not content:
        del place[key]
    elif kind == "double" and isinstance(place, list) and place is not content:
        place.append(copy.deepcopy(place[key]))
    elif kind == "more" and isinstance(place[key], dict):
        place[key][choose.choice(("new", "host", "", "format", "state"))] = copy.deepcopy(choose.choice(VALUES))
    else:
        place[key] = copy.deepcopy(choose.choice(VALUES))
