# SPDX-License-Identifier: Apache-2.0
"""Read which packages a job's script imports as it starts, so that a missing one is found before the job starts.

The script is never run. A wrong finding is worse than a missing one, so the check ends at anything that may bring a
module another way.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import PurePosixPath

from ...base.findings import Finding

# Options of Python that do not change where modules are found, and those of them that take a value.
_OPTIONS = re.compile(r"-(?:[uBOqvdb]+|OO)")
_WITH_VALUE = ("-X", "-W")
# A script with one of these may find modules elsewhere, or install them.
_OTHER_WAYS = re.compile(r"sys\.path|site\.addsitedir|\bchdir\b|__import__|meta_path|\bpip\b|easy_install|ensurepip")
# Distributions with another name than their module.
DISTRIBUTIONS = {
    "attr": "attrs",
    "bs4": "beautifulsoup4",
    "cv2": "opencv-python-headless",
    "dateutil": "python-dateutil",
    "PIL": "pillow",
    "skimage": "scikit-image",
    "sklearn": "scikit-learn",
    "yaml": "PyYAML",
}
FRAMEWORKS = ("torch", "mindspore", "oneflow")
# Modules that only some releases of their package have.
RELEASES = {"oneflow.typing": "OneFlow up to 0.4 (docs/guide-oneflow.md)"}
# Environments of the roles, which have a variable for further packages.
RUNTIMES = ("pytorch", "mindspore", "oneflow")


def script(command: Sequence[str]) -> str:
    """Return the script that a command runs by Python itself; "" for anything else, such as `bash run.sh`."""
    words = list(command)
    if not re.fullmatch(r"python[\d.]*", PurePosixPath(words[0]).name):
        return ""
    at = 1
    while at < len(words) and words[at].startswith("-"):
        if words[at] in _WITH_VALUE:
            at += 1
        elif not _OPTIONS.fullmatch(words[at]):
            return ""
        at += 1
    return words[at] if at < len(words) and words[at].endswith(".py") else ""


def of_script(command: Sequence[str], files: Sequence[str], read: Callable[[str], str]) -> list[str]:
    """Return the imports of a command's script if it is one of the `files` of job_source, whose text `read` returns."""
    name = script(command).removeprefix("./")
    if name not in files:
        return []
    try:
        return imported(read(name), files)
    except (OSError, ValueError):
        return []


def imported(text: str, beside: Sequence[str] = ()) -> list[str]:
    """Return what a script always imports (outside try, if, functions), but files `beside` it.

    `a.b` is a module, and `a.b:c` a name of one, which may be a module, too.
    """
    if _OTHER_WAYS.search(text):
        return []
    try:
        body = ast.parse(text).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []
    names: dict[str, None] = {}
    for statement in body:
        if isinstance(statement, ast.Import):
            names |= {alias.name: None for alias in statement.names}
        elif isinstance(statement, ast.ImportFrom) and not statement.level and statement.module:
            names |= {_name(statement.module, alias.name): None for alias in statement.names}
    own = {part.partition(".")[0] for path in beside for part in PurePosixPath(path).parts}
    # Start-up code of the job may add any folder.
    return [] if own & {"sitecustomize", "usercustomize"} else [name for name in names if _top(name) not in own]


def _name(module: str, name: str) -> str:
    if name == "*" or f"{module}.{name}" in RELEASES:
        return module if name == "*" else f"{module}.{name}"
    return f"{module}:{name}"


def _top(name: str) -> str:
    return re.split("[.:]", name, maxsplit=1)[0]


def finding(host: str, name: str, missing: Sequence[str], python: str, venv: str) -> Finding:
    """Return the finding for modules that a script imports and a node's Python does not have."""
    found = f"{name} imports {', '.join(missing)}, which {python} does not have"
    actions = _actions(missing, PurePosixPath(venv).name if python.startswith(f"{venv}/bin/") else "")
    return Finding("imports", found, "a Python with all imports of the script", ", and ".join(actions), host=host)


def _actions(missing: Sequence[str], runtime: str) -> list[str]:
    """Return how to install modules for the Python of a role's environment, or for another one ("")."""
    inside = [name for name in missing if "." in name]
    packages = [DISTRIBUTIONS.get(name, name) for name in missing if name not in (*FRAMEWORKS, *inside)]
    frameworks = [name for name in missing if name in FRAMEWORKS]
    if frameworks:
        return [f"set job_venv to the environment that has {', '.join(frameworks)}"]
    others = [f"set job_venv or job_image to an environment with {with_module(name)}" for name in inside]
    if runtime not in RUNTIMES or not packages:
        return [*([f"install {', '.join(packages)} for that Python on the nodes"] if packages else []), *others]
    actions = []
    if runtime == "pytorch" and "torchvision" in packages:
        packages.remove("torchvision")
        actions.append("set pytorch_torchvision: auto")
    if packages:
        actions.append(f"add {', '.join(packages)} to {runtime}_extra_packages, each as NAME==VERSION")
    return [*actions, "run site.yml", *others]


def with_module(name: str) -> str:
    """Return which release has a module that another release of its package lacks."""
    return RELEASES.get(name) or f"an earlier or newer release of {_top(name)}, which has {name}"


def settings(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of a rank that change where its Python finds modules."""
    return {name: value for name, value in environment.items() if name.startswith("PYTHON")}


def is_known(environment: Mapping[str, str], secret: Sequence[str]) -> bool:
    """Tell whether it is known where a rank's Python finds modules: no secret, no archive that comes with the job."""
    paths = environment.get("PYTHONPATH", "").split(":")
    archives = any(path.endswith((".zip", ".egg", ".whl")) for path in paths)
    return not archives and not any(name.startswith("PYTHON") for name in secret)
