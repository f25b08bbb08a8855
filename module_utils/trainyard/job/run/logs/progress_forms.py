# SPDX-License-Identifier: Apache-2.0
"""Read progress from the lines that training programs print by themselves (docs/job-file.md#progress).

A line is progress if it states the loss of the training: `loss: 2.3`, `train_loss=2.3`, `Loss 2.3 (2.4)`,
`loss is 2.3`, `train-logloss:0.44`. The step, the epoch and the rate are what stands beside it. Two kinds of lines
count without a loss: bars with a name of training, DeepSpeed's timers, and the epochs of PyTorch's tutorial on DDP.

A wrong reading is worse than none: no loss of a validation, a checkpoint or a part of a model is read, and no number
whose comma may mean a decimal or thousands. Every repetition that can fail is bounded, so that a line takes time in
proportion to its length.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from ....base.late_pattern import late_pattern
from ....base.visible import ESCAPE_SEQUENCE


class Reading(NamedTuple):
    """What one line states. Only progress_reader.py, which knows the lines before, can tell what some of it means."""

    # Metrics, if the line is progress by itself.
    values: dict[str, float]
    # Step, steps and rate of a bar, whatever it counts, and the text before it.
    bar: dict[str, float]
    name: str
    # The number of epochs, and whether the steps are those of one epoch, whose number the line has.
    epochs: float | None
    within: bool


def _marked(*pairs: tuple[str, str]) -> tuple[tuple[str, re.Pattern[str]], ...]:
    """Compile patterns; each stands behind a text without which it finds nothing."""
    return tuple((mark, late_pattern(pattern)) for mark, pattern in pairs)


# A number with all of its points and commas; number_of() says what it means. `2.3s`, `5%`, `0.3.ckpt` are no numbers.
_NUMBER = r"[-+]?(?:(?:\d(?:[\d.,]*\d)?\.?|\.\d+)(?:[eE][-+]?\d+)?|(?:nan|inf(?:inity)?)\b)(?![\w%]|[.,]\w)"
_COUNT = r"(?:\d{1,3}(?:,\d{3})+(?!\d)|\d+)(?![\w%]|[.,:]\d)"
# The text between a name and its value.
_IS = r"(?=[\s:=|\"'\[(]|->)[\"']?\s{0,20}(?:[:=|]|is\b|of\b|at\b|->)?\s{0,20}[\"']?(?:tensor)?[\[(#]?\s{0,20}"
_OF = r"\s{0,8}(?:/|\bof\b)\s{0,8}"
_STEP_OF = rf"(?P<step>{_COUNT})\s{{0,8}}/\s{{0,8}}(?P<steps>{_COUNT})(?!/)"

_PLAIN = r"(?:train(?:ing|er)?|tr|total|avg|average|mean|running|lm|batch|step|epoch|iter|global|overall)"
_LOSS = late_pattern(
    r"(?<![a-z])(?:(?:binary_|multi_)?m?log)?loss"
    r"(?:[_/ ]\(?(?:train(?:ing)?|step|epoch|value|avg|mean|total)\)?){0,2}(?![\w/])"
    rf"{_IS}(?P<loss>{_NUMBER})"
    # Not the first of a list.
    r"(?!\s?,\s?-?\d[\d.]{0,20}\s?[,)\]])"
)
# The text joined to `loss` in front of it (train_, train/), or the word before it where nothing is joined.
_JOINED = late_pattern(r"[\w/.-]*$")
_WORD = late_pattern(r"\b([a-z]+)\s{1,4}$")
# `train_loss` and `avg_loss` are the loss of the model. Other names may be, or a part of it; these are a part.
_WHOLE = late_pattern(rf"(?:(?:^|[/._-]){_PLAIN}[/._-]{{1,2}}|^)$")
_PLAIN_WORD = late_pattern(rf"{_PLAIN}|info|debug|warning")
_PART = late_pattern(
    r"(?:^|[/._-])(?:d|g|gen|generator|disc|discriminator|critic|actor|policy|value|entropy|aux|auxiliary|kl|reg|"
    r"regularization|style|content|adversarial|box|bbox|class|cls|packet|weight|hearing|min|max|minimum|lowest|last|"
    r"previous|prev|initial|target)(?:[/._-]|$)"
)
_TRAINED = late_pattern(r"(?<![a-z])train(?:ing|er)?[/._ -]{1,2}(?:(?:avg|average|mean|total)[/._ -]{1,2})?$")
# A loss behind these words is not that of the step that was just made.
_NOT_NOW = late_pattern(
    r"(?<![\w/.-])(?:val(?:id(?:at\w{1,6})?)?|eval(?:uat\w{1,6})?|test(?:ing|ed)?|dev|predict\w{0,6}|infer\w{0,6}|"
    r"sanity|best|load(?:ed|ing)|resum\w{1,4}|restor\w{1,4}|checkpoints?|train_runtime)(?:_|(?![\w/-]|\.\w))"
)
_NOT_NOW_JOINED = late_pattern(r"(?:^|[/._-])(?:val(?:id(?:ation)?)?|eval(?:uation)?|test|dev|best|min|ema)[/._-]")

# The first of these that a line has counts its steps.
_NOT_A_STEP = r"(?<![\w/.-])(?<!per )(?<!max )(?<!total )(?<!every )(?<!warmup )(?<!skipped )(?<!number of )"
_STEP_VALUE = rf"(?:\(train\))?{_IS}(?P<step>{_COUNT})(?:{_OF}(?P<steps>{_COUNT}))?"
_STEP_NAMES = {
    "global": r"global[_ ]?step",
    "step": r"steps?",
    "iter": r"iter(?:ation)?s?",
    "it": r"it",
    "update": r"(?:num_)?updates?",
    "batch": r"(?:mini-?)?batch",
}
_STEPS = _marked(
    *((mark, _NOT_A_STEP + name + _STEP_VALUE) for mark, name in _STEP_NAMES.items()),
    ("/", rf"(?<![\w/.,-]){_STEP_OF} (?:batches|steps|iterations|iters)\b"),
    # [00100/2000] loss=0.1; loss: 2.3  [   64/60000]; in [1/5] [10/100] the first is an epoch.
    ("/", rf"^\s{{0,8}}\[\s{{0,8}}{_STEP_OF}\s{{0,8}}\](?!\s{{0,8}}\[)"),
    ("/", rf"(?<=\s)\[\s{{0,8}}{_STEP_OF}\s{{0,8}}\]$"),
    # XGBoost, LightGBM.
    ("]\t", r"^\[(?P<step>\d+)\]\t"),
)
# Counts behind the epoch: [ 245/160146], [64/2048 (12%)], (1/100), 10/100.
_BEHIND = rf"[\s:,|-]{{0,8}}[\[(]?\s{{0,8}}{_STEP_OF}"
_EPOCHS = _marked(
    (
        "epoch",
        rf"(?<![\w/.-])(?:train(?:ing)?[ _])?epochs?(?:\s?\(train\))?{_IS}(?P<epoch>\d+(?:\.\d+)?)(?![\w%]|[.,]\d)"
        rf"(?:{_OF}(?P<epochs>\d+))?[\"'\])]{{0,2}}(?:{_BEHIND})?",
    ),
    ("train", rf"(?<![\w/.-])train(?:ing)?:?\s{{0,8}}\[?(?P<epoch>\d+)(?:/(?P<epochs>\d+))?\]?{_BEHIND}"),
    ("/", rf"\[(?P<epoch>\d+)/(?P<epochs>\d+)\]\s?\[\s{{0,8}}{_STEP_OF}\]"),
    # PyTorch's tutorial for CIFAR-10: [1,  2000] loss: 0.5.
    ("] loss", r"\[(?P<epoch>\d+),\s{0,8}(?P<step>\d+)\] loss"),
)
_PER_SECOND = r"(?:it|iter|step|batch|batche|sample|token|tok|img|image|seq)s?/s(?:ec(?:ond)?)?"
_RATES = _marked(
    ("rate", rf"(?:\d|\)|nan|inf)[\s,;|]{{1,8}}rate{_IS}(?P<rate>{_NUMBER})"),
    ("tps", rf"(?<![\w/])tps{_IS}(?P<rate>{_NUMBER})"),
    ("tps", r"(?<![\w.,])(?P<rate>\d[\d.,]{0,20}) ?tps\b"),
    ("/s", rf"(?<![\w/]){_PER_SECOND}{_IS}(?P<rate>{_NUMBER})"),
    ("/s", rf"(?<![\w.,])(?P<rate>\d[\d.,]{{0,20}}) ?{_PER_SECOND}\b"),
)

# Bars: a count beside a percentage, a drawing or a time. Sizes of downloads are no counts.
_DRAWN = "━─╸╺█"
_BAR_COUNT = r"(?P<step>\d+)/(?P<steps>\d+)(?![\w/.,%]|\s?[kKMGT]?i?B\b)"
_BARS = (
    late_pattern(
        rf"(?:(?<!\d)\d{{1,3}}(?:\.\d+)?%(?:\|[^|]{{0,300}}\||\s?[{_DRAWN}]{{1,300}})?|"
        rf"(?<![{_DRAWN}])[{_DRAWN}]{{1,300}})[\s\[]{{0,8}}{_BAR_COUNT}"
    ),
    late_pattern(
        rf"(?<![\w/.,-]){_BAR_COUNT}\]?\s{{1,8}}"
        rf"(?:\[[=>.#-]{{3}}|[{_DRAWN}]|\d{{1,3}}%\||- \d+m?s |\[\d+:\d\d[<:])"
    ),
)
# Without any of these a line has no bar.
_BAR_SIGN = late_pattern(rf"[%{_DRAWN}]|\ds |\[[=>.#\d-]")
_BAR_RATE = late_pattern(r"(?<![\w.])(?P<rate>\d+(?:\.\d+)?)(?P<unit>it/s|s/it)\b")
# A name of training: bars of evaluations and of data have verbs and things of their own (`Building labels for train
# dataset`).
_TRAINS = late_pattern(r"(?i)(?:\b|_)(?:(?:pre)?train(?:ing|er)?|epochs?|steps?|iter(?:ation)?s?)(?:\b|_)")
_NOT_TRAINING = late_pattern(
    r"(?i)(?:\b|_)(?:val(?:id(?:at(?:e|ion))?)?|eval(?:uat(?:e|ion))?|test|predict(?:ion)?|inference|sanity|"
    r"download|load|map|filter|token(?:s|ize)?|generate|fetch|save|data(?:sets?)?|labels?|files?|samples|examples|"
    r"splits?|(?!(?:pre)?train|(?:fine)?-?tun|learn|runn)[a-z]{2,30}ing)(?:\b|_)"
)
# DeepSpeed's timers, and the epochs of PyTorch's tutorial on DDP.
_WITHOUT_LOSS = _marked(
    ("CurrSamplesPerSec=", r"\bglobal_step=(?P<step>\d+), .{0,200}?\bCurrSamplesPerSec=(?P<rate>\d+(?:\.\d+)?)"),
    ("Batchsize", r"\bEpoch (?P<epoch>\d+) \| Batchsize:? \d+ \| Steps:? \d+"),
)
# The number of steps of each epoch, which is no step.
_EACH_EPOCH = late_pattern(r"\bbatchsize:? \d+ \| steps:? \d+")
_DICTIONARY = late_pattern(r"\{'[^{}]*\}")
_PAIR = late_pattern(rf"'([\w./-]{{1,64}})': '?({_NUMBER})'?(?=[,}}])")


def clean(line: str) -> str:
    """Return a line as a terminal would show it: without colours, and of what writes over itself the last."""
    return ESCAPE_SEQUENCE.sub("", line).replace("\b", "").rstrip("\r").rpartition("\r")[2]


def number_of(text: str, line: str, count: bool = False) -> float | None:
    """Return the value of a number as it stands in a line; None where it is none, or may be either of two.

    `2,3025` has a decimal comma and `1,234,567` has thousands. `1,234` has thousands if it is a count, or where other
    numbers of the line have decimal points.
    """
    text = text.rstrip(".,")
    if "," in text:
        digits = re.split("[eE]", text)[0].lstrip("+-")
        if re.fullmatch(r"[1-9]\d{0,2}(?:,\d{3})+(?:\.\d*)?", digits):
            if not (count or "." in digits or digits.count(",") > 1 or re.search(r"\d\.\d", line)):
                return None
            text = text.replace(",", "")
        elif re.fullmatch(r"\d+,\d+|\d{1,3}(?:\.\d{3})+,\d+", digits):
            text = text.replace(".", "").replace(",", ".")
    try:
        return float(text)
    except ValueError:
        return None


def _numbers(texts: dict[str, str], line: str) -> dict[str, float]:
    values = {name: number_of(text, line, name in ("step", "steps")) for name, text in texts.items()}
    return {name: value for name, value in values.items() if value is not None}


def _first(patterns: Iterable[tuple[str, re.Pattern[str]]], line: str) -> dict[str, str]:
    """Return the groups of the first pattern that finds something."""
    match = next(filter(None, (pattern.search(line) for mark, pattern in patterns if mark in line)), None)
    return {name: text for name, text in match.groupdict().items() if text is not None} if match else {}


def _loss(line: str) -> tuple[float | None, bool]:
    """Return the loss of the training that a line states, or None; and whether it has a name of its own."""
    plain: list[float] = []
    joint: list[float] = []
    others: list[float | None] = []
    aside = _NOT_NOW.search(line)
    for match in _LOSS.finditer(line):
        before = line[max(0, match.start() - 48) : match.start()]
        value = number_of(match["loss"], line)
        joined = _JOINED.search(before)[0]  # type: ignore[index]
        if (
            value is None
            or (aside and aside.start() < match.start() and not _TRAINED.search(before))
            or _NOT_NOW_JOINED.search(joined)
        ):
            continue
        word = _WORD.search(before)
        name = joined or (word[1] if word else "")
        if _PART.search(name):
            others.append(None)
        elif joined and _WHOLE.search(joined):
            joint.append(value)
        elif joined or (name and not _PLAIN_WORD.fullmatch(name)):
            others.append(value)
        else:
            plain.append(value)
    whole = plain or joint
    return (whole[0], False) if whole else (others[0] if len(others) == 1 else None, True)


def _beside(line: str) -> tuple[dict[str, float], bool]:
    """Return the step, the epoch and the rate that stand beside a loss, and whether the steps are those of an epoch."""
    line = _EACH_EPOCH.sub("", line)
    behind = _first(_EPOCHS, line)
    named = _first(_STEPS, line)
    within = "epoch" in behind and ("step" in behind if not named else "batch" in line and "step" not in line)
    if named:
        behind = {name: text for name, text in behind.items() if name in ("epoch", "epochs")}
    return _numbers({**behind, **named, **_first(_RATES, line)}, line), within


def _bar(line: str) -> tuple[dict[str, float], str]:
    """Return the step and the rate of a bar, and the text before it."""
    signs = "/" in line and _BAR_SIGN.search(line)
    match = next(filter(None, (pattern.search(line) for pattern in _BARS)), None) if signs else None
    if not match:
        return {}, ""
    bar = {"step": float(match["step"]), "steps": float(match["steps"])}
    rate = _BAR_RATE.search(line, match.end(), match.end() + 80)
    if rate and float(rate["rate"]):
        bar["rate"] = float(rate["rate"]) if rate["unit"] == "it/s" else 1 / float(rate["rate"])
    return bar, line[: match.start()].rstrip(f" |-[{_DRAWN}")


def _dictionary(line: str) -> dict[str, float]:
    """Read a step of Hugging Face's Trainer. Those of an evaluation have eval_loss, and the last one train_loss."""
    found = next((each for each in _DICTIONARY.findall(line) if "'epoch': " in each), "")
    pairs = dict(_PAIR.findall(found))
    names = ("loss", "epoch", "step", "learning_rate", "grad_norm")
    return _numbers({name: pairs[name] for name in names if name in pairs}, line) if "loss" in pairs else {}


def is_aside(line: str) -> bool:
    """Return whether a line is about an evaluation or a checkpoint."""
    return bool(_NOT_NOW.search(line.lower()))


def other_bar(name: str) -> bool:
    """Return whether a bar of this name counts something other than training: an evaluation, data, a download."""
    return bool(_NOT_TRAINING.search(name))


def read(line: str) -> Reading:
    """Return what a line states; its values are {} where it states no progress by itself."""
    if "'epoch': " in line:
        return Reading(_dictionary(line), {}, "", None, False)
    bar, name = _bar(line)
    lower = line.lower()
    loss, named = _loss(lower) if "loss" in lower else (None, True)
    found, within = _beside(lower) if loss is not None else ({}, False)
    epochs, values = found.pop("epochs", None), {}
    # The only loss of a line is the model's, whatever its name, if the line has a step or an epoch as well.
    if loss is not None and (not named or bar or "step" in found or "epoch" in found):
        if "step" in found and found["step"] != bar.get("step"):
            shown = {name: value for name, value in bar.items() if name == "rate"}
        else:
            shown, within = bar, within or ("epoch" in found and bool(bar))
        values = {**found, **shown, "loss": loss}
    elif bar and _TRAINS.search(name) and not other_bar(name):
        texts = {each: text for each, text in _first(_EPOCHS, name.lower()).items() if each in ("epoch", "epochs")}
        values = {**bar, **_numbers(texts, name)}
        epochs, within = values.pop("epochs", None), "epoch" in values
    return Reading(values or _numbers(_first(_WITHOUT_LOSS, line), line), bar, name, epochs, within)
