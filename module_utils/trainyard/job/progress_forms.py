# SPDX-License-Identifier: Apache-2.0
"""Progress as frameworks print it by themselves: what is surely said is taken, and nothing else.

| framework | line |
|---|---|
| Hugging Face Trainer | {'loss': 0.4321, 'grad_norm': 1.2, 'learning_rate': 5e-05, 'epoch': 0.5} |
| tqdm, Lightning | Epoch 0:  50%|#####     | 100/200 [00:10<00:10, 9.80it/s, train_loss=0.345] |
| Megatron-LM | iteration 10/ 500 | ... | global batch size: 16 | lm loss: 9.876543E+00 | ... |
| DeepSpeed | steps: 10 loss: 2.3010 iter time (s): 0.512 samples/sec: 31.250 |
| DeepSpeed | epoch=0/micro_step=10/global_step=10, RunningAvgSamplesPerSec=120.1, CurrSamplesPerSec=130.2, ... |
| torchtitan | step: 10  loss:  7.1234  grad_norm: 1.2  memory: 10.5GiB(11.1%)  tps: 5,123  tflops: 30.1  mfu: 9.65% |
| Keras | 10/100 [==>...........] - ETA: 12s - loss: 0.4567 - accuracy: 0.8123 |

`step` is counted as the framework counts it (Lightning and Keras anew in each epoch); `rate` is what it says: steps,
samples or tokens a second. Bars of evaluations, downloads and the like, which look the same, are told by their names;
one that has neither a name of a training nor a loss is not taken.
"""

from __future__ import annotations

import re
from typing import Callable, Optional

from ..findings.visible import ESCAPE_SEQUENCE

Found = Optional[dict[str, str]]

NUMBER = r"[-+]?(?:(?:\d+(?:,\d{3})*\.?\d*|\.\d+)(?:[eE][-+]?\d+)?|(?:nan|inf(?:inity)?)\b)"
WHOLE = r"(?:\d{1,3}(?:,\d{3})+|\d+)"

_TRAINS = re.compile(r"(?i)\b(?:train(?:ing|er)?|epochs?|steps?|iter(?:ation)?s?)\b")
_NOT_TRAINING = re.compile(
    r"(?i)(?:\b|_)(?:val(?:id(?:at(?:e|ing|ion))?)?|eval(?:uat(?:e|ing|ion))?|test(?:ing)?|predict(?:ing|ion)?|sanity|"
    r"download(?:ing)?|load(?:ing)?|map|filter|token(?:iz(?:e|ing))?|generat(?:e|ing)|fetch(?:ing)?|sav(?:e|ing))(?:\b|_)"
)
_LOSSES = ("loss", "train_loss", "train/loss", "training_loss", "loss_step", "train_loss_step")

_DICTIONARY = re.compile(r"\{'[^{}]*'epoch': [^{}]*\}")
_PAIR = re.compile(r"'([\w./-]+)': '?(" + NUMBER + r")'?(?=[,}])")
_BAR = re.compile(
    r"^(?P<name>[^|]*?)(?::\s*)?\s*\d{1,3}%\|[^|]*\|\s*(?P<step>\d+)/(?P<steps>\d+) \[[^\],]*"
    r"(?:, *(?P<rate>\d+(?:\.\d+)?)(?P<unit>[\w.]*/s|s/\w+))?(?P<more>[^\]]*)\]"
)
_POSTFIX = re.compile(r"([\w./-]+)=(" + NUMBER + r")(?=[,\]\s]|$)")
_MEGATRON = re.compile(
    r"\biteration +(?P<step>\d+)/ *(?P<steps>\d+) \|.*?(?:\| *(?:lm )?loss: *(?P<loss>" + NUMBER + r") *\|)"
)
_PIPELINE = re.compile(
    r"\bsteps: (?P<step>\d+) loss: (?P<loss>"
    + NUMBER
    + r") .{0,200}?iter time \(s\): [\d.]+ samples/sec: (?P<rate>\d+(?:\.\d+)?)"
)
_TIMERS = re.compile(r"\bglobal_step=(?P<step>\d+), .*?\bCurrSamplesPerSec=(?P<rate>\d+(?:\.\d+)?)")
_TITAN = re.compile(
    r"\bstep: +(?P<step>" + WHOLE + r") +loss: +(?P<loss>" + NUMBER + r") .*?\btps: +(?P<rate>" + NUMBER + r")"
)
_KERAS = re.compile(
    r"^ *(?P<step>\d+)/(?P<steps>\d+) +(?:\[[=>.]+\]|[━╸╺]+) .*?(?:^|[ -])loss: (?P<loss>" + NUMBER + r")(?: |$)"
)


def clean(line: str) -> str:
    """Return a line as a terminal would show it: without colours, and of what writes over itself the last."""
    return ESCAPE_SEQUENCE.sub("", line).replace("\b", "").rstrip("\r").rpartition("\r")[2]


def _dictionary(line: str) -> Found:
    """Trainer prints one for each logging step; those of an evaluation have eval_loss, and the last one train_loss."""
    found = _DICTIONARY.search(line)
    pairs = dict(_PAIR.findall(found.group())) if found else {}
    if "loss" not in pairs:
        return None
    names = ("loss", "epoch", "step", "learning_rate", "grad_norm")
    return {name: pairs[name] for name in names if name in pairs}


def _bar(line: str) -> Found:
    bar = _BAR.match(line)
    if bar is None or _NOT_TRAINING.search(bar["name"]):
        return None
    after = dict(_POSTFIX.findall(bar["more"]))
    loss = next((after[name] for name in _LOSSES if name in after), None)
    if loss is None and not _TRAINS.search(bar["name"]):
        return None
    found = {"step": bar["step"], "steps": bar["steps"]}
    epoch = re.search(r"(?i)\bepoch\W{0,3}(\d+)", bar["name"])
    if epoch:
        found["epoch"] = epoch[1]
    if loss is not None:
        found["loss"] = loss
    if bar["rate"] and bar["unit"] == "it/s":
        found["rate"] = bar["rate"]
    elif bar["rate"] and bar["unit"] == "s/it" and float(bar["rate"]) > 0:
        found["rate"] = str(1 / float(bar["rate"]))
    return found


def _of(pattern: re.Pattern[str]) -> Callable[[str], Found]:
    def read(line: str) -> Found:
        match = pattern.search(line)
        return {name: text for name, text in match.groupdict().items() if text is not None} if match else None

    return read


# What a line must contain to be looked at by a form at all: most lines of a log are none of these.
_FORMS: tuple[tuple[str, Callable[[str], Found]], ...] = (
    ("'epoch': ", _dictionary),
    ("%|", _bar),
    ("iteration ", _of(_MEGATRON)),
    ("samples/sec: ", _of(_PIPELINE)),
    ("CurrSamplesPerSec=", _of(_TIMERS)),
    ("tps: ", _of(_TITAN)),
    ("loss: ", _of(_KERAS)),
)
# A line with one of these is a bar, whatever else a pattern may find in it.
_BARS = ("%|",)


def read(line: str) -> tuple[bool, Found]:
    """Return whether a line is one of a framework's own, and its metrics as texts by name; None where it tells none."""
    for mark, form in _FORMS:
        if mark in line:
            found = form(line)
            if found is not None or mark in _BARS:
                return True, found
    return False, None
