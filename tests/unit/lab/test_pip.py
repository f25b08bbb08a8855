"""How far pip is while `make` installs the tools of this machine."""

from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path

LOADER = SourceFileLoader("ci_pip", str(Path(__file__).resolve().parents[3] / ".ci/pip"))
ci_pip = module_from_spec(spec_from_loader("ci_pip", LOADER))
LOADER.exec_module(ci_pip)


def test_the_output_of_pip_is_followed():
    progress = ci_pip.Progress()
    shown = [progress.text]
    for now, line in enumerate(
        ["Collecting a==1", "Progress 1048576 of 4194304", "Collecting b", "Installing collected packages: a, b"]
    ):
        progress.read(f"{line}\n", float(now))
        shown.append(progress.text)
    assert shown[1:] == [
        "package 1, a==1",
        "package 1, a==1: 1 MiB of 4 MiB, 1 MiB/s, 3 s left",
        "package 2, b",
        "unpacking 2 packages",
    ]
    # The output that is shown if pip fails.
    assert "Progress" not in "".join(progress.lines)
