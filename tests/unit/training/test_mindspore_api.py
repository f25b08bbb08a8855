"""Every call of MindSpore in our programs, compared with the signatures of 1.7.0, 2.0.0 and 2.10.0.

The trainings really run on 2.10.0 (scenario launchers); GPU builds of 1.7 need CUDA to be imported at all.
"""

import pytest
from mindspore_api import OVERRIDDEN, recorded, uses

RELEASES = recorded()
# What releases.py and device_mindspore.py ask for, and use where it is there: a name, and which of the three have it.
DIFFER = {
    **{f"mindspore.{name}": {"2.10.0"} for name in ("set_device", "set_deterministic")},
    **{f"mindspore.dataset.vision.{name}": {"2.0.0", "2.10.0"} for name in
       ("HWC2CHW", "Normalize", "RandomCrop", "RandomHorizontalFlip", "Rescale", "Resize")},
    **{f"mindspore.dataset.vision.c_transforms.{name}": {"1.7.0", "2.0.0"} for name in
       ("HWC2CHW", "Normalize", "RandomCrop", "RandomHorizontalFlip", "Rescale", "Resize")},
}  # fmt: skip
USES = uses()


def accepts(signature, use):
    """Tell whether a call fits: every keyword known, nothing needed missing, not more by position than there is."""
    if signature is None:
        return False
    names, given = signature["names"], list(use.keywords)
    by_position = names[: use.positional or 0]
    if not signature["any"] and ((use.positional or 0) > len(names) or set(given) - set(names[len(by_position) :])):
        return False
    return use.positional is None or set(names[: signature["needed"]]) <= {*by_position, *given}


def test_three_releases_are_recorded():
    assert sorted(RELEASES) == ["1.7.0", "2.0.0", "2.10.0"]


@pytest.mark.parametrize("release", RELEASES)
def test_every_name_is_recorded_and_is_there(release):
    record = RELEASES[release]
    wanted = {use.name for use in USES} | set(OVERRIDDEN)
    assert wanted == set(record), "write the records anew: mindspore_api.py says how"
    missing = {name for name in wanted if record[name] is None}
    assert missing == {name for name, there in DIFFER.items() if release not in there}


@pytest.mark.parametrize("release", RELEASES)
def test_every_call_fits(release):
    wrong = [
        f"{use.where}: {use.name}"
        for use in USES
        if RELEASES[release][use.name] is not None and not accepts(RELEASES[release][use.name], use)
    ]
    # Which of the two is called, releases.py decides by the signature that it finds.
    differs = [text for text in wrong if text.startswith("releases.py") and text.endswith("Model.train")]
    assert wrong == differs
    assert len(differs) == (1 if release == "1.7.0" else 0)


def test_pictures_are_prepared_alike_before_and_after_the_old_names():
    for name in ("HWC2CHW", "Normalize", "RandomCrop", "RandomHorizontalFlip", "Rescale", "Resize"):
        old = RELEASES["1.7.0"][f"mindspore.dataset.vision.c_transforms.{name}"]
        calls = [use for use in USES if use.name == f"mindspore.dataset.vision.{name}" and use.positional is not None]
        assert calls and all(accepts(old, use) for use in calls)
