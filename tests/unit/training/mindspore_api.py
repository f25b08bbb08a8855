# SPDX-License-Identifier: Apache-2.0
"""Which names of MindSpore our programs use and how, and what a release says of them.

A release is recorded from the Python sources of its wheel, as the GPU builds of 1.x cannot be imported without CUDA:

    pip download --no-deps --python-version 3.9 --only-binary :all: mindspore-gpu==1.7.0
    unzip mindspore_gpu-1.7.0-*.whl 'mindspore/*.py' -d FOLDER
    python tests/unit/training/mindspore_api.py FOLDER 1.7.0
"""

from __future__ import annotations

import ast
import json
import sys
from dataclasses import dataclass
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[3]
PROGRAMS = [*PROJECT.glob("training/mindspore/*.py"), PROJECT / "training/benchmark/device_mindspore.py"]
RECORD = PROJECT / "tests/fixtures/mindspore/api.json"
# Methods by the variable on which the programs call them: what that is cannot be read from the text alone.
METHODS = {
    ("model", "train"): "mindspore.train.Model.train",
    ("model", "train_network"): "mindspore.train.Model.train_network",
    ("each", "map"): "mindspore.dataset.GeneratorDataset.map",
    ("ready", "batch"): "mindspore.dataset.GeneratorDataset.batch",
    ("made", "get_dataset_size"): "mindspore.dataset.GeneratorDataset.get_dataset_size",
    ("network", "set_train"): "mindspore.nn.Cell.set_train",
    ("network", "trainable_params"): "mindspore.nn.Cell.trainable_params",
    ("parameter", "asnumpy"): "mindspore.Tensor.asnumpy",
    ("tensor", "asnumpy"): "mindspore.Tensor.asnumpy",
    ("run_context", "original_args"): "mindspore.train.callback.RunContext.original_args",
}
# What programs override, and so must be called.
OVERRIDDEN = ("mindspore.train.callback.Callback.step_end", "mindspore.train.callback.Callback.epoch_end")


# The module in which a name is defined, and its definition.
Found = tuple[str, ast.AST]


@dataclass(frozen=True)
class Call:
    """One use of a name: at `file:line`, with so many positional arguments (None: not called) and these keywords."""

    name: str
    where: str
    positional: int | None
    keywords: tuple[str, ...]


def _dotted(node: ast.expr) -> list[str]:
    if isinstance(node, ast.Name):
        return [node.id]
    if isinstance(node, ast.Attribute):
        inner = _dotted(node.value)
        return [*inner, node.attr] if inner else []
    return []


def uses() -> list[Call]:
    """Return every use of a name of MindSpore in the programs."""
    found = []
    for path in sorted(PROGRAMS):
        tree = ast.parse(path.read_text())
        known: dict[str, str] = {}
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                if any(alias.name.partition(".")[0] == "mindspore" for alias in node.names):
                    known["mindspore"] = "mindspore"
            elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("mindspore"):
                for alias in node.names:
                    known[alias.name] = f"{node.module}.{alias.name}"
                    found.append(Call(known[alias.name], f"{path.name}:{node.lineno}", None, ()))
        called = {id(node.func): node for node in ast.walk(tree) if isinstance(node, ast.Call)}
        inner = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
        for node in ast.walk(tree):
            if not isinstance(node, (ast.Name, ast.Attribute)) or id(node) in inner:
                continue
            words = _dotted(node)
            if not words:
                continue
            if words[0] == "releases" and words[-1][0].isupper() and len(words) == 2 and "_" not in words[1]:
                name = f"mindspore.dataset.vision.{words[1]}"
            elif words[0] in known and (len(words) > 1 or id(node) in called):
                name = ".".join([known[words[0]], *words[1:]])
            elif tuple(words[-2:]) in METHODS:
                name = METHODS[words[-2], words[-1]]
            else:
                continue
            call = called.get(id(node))
            found.append(
                Call(
                    name,
                    f"{path.name}:{node.lineno}",
                    len(call.args) if call and not any(isinstance(arg, ast.Starred) for arg in call.args) else None,
                    tuple(word.arg for word in call.keywords if word.arg) if call else (),
                )
            )
    return found


class Sources:
    """The Python sources of a wheel, in which names are looked up as an import would find them."""

    def __init__(self, folder: Path) -> None:
        """Take the folder in which `mindspore/` is."""
        self.folder = folder
        self._trees: dict[Path, ast.Module] = {}

    def _file(self, dotted: str) -> Path | None:
        path = self.folder.joinpath(*dotted.split("."))
        return next((file for file in (path / "__init__.py", path.with_suffix(".py")) if file.is_file()), None)

    def _tree(self, file: Path) -> ast.Module:
        if file not in self._trees:
            self._trees[file] = ast.parse(file.read_text(encoding="utf-8"))
        return self._trees[file]

    def find(self, module: str, name: str, seen: frozenset[tuple[str, str]] = frozenset()) -> Found | None:
        """Return the module in which `name` of `module` is defined, and its definition; None: there is no such name."""
        file = self._file(module)
        if file is None or (module, name) in seen:
            return None
        seen |= {(module, name)}
        package = module if file.name == "__init__.py" else module.rpartition(".")[0]
        body = self._tree(file).body
        for node in body:
            if isinstance(node, (ast.ClassDef, ast.FunctionDef)) and node.name == name:
                return module, node
            if isinstance(node, ast.Assign) and any(_dotted(target) == [name] for target in node.targets):
                return module, node
        up = package.split(".")
        imports = [node for node in ast.walk(self._tree(file)) if isinstance(node, ast.ImportFrom)]
        # By its name first: of everything that a module has, some is not handed on.
        for how in (name, "*"):
            for node in imports:
                if how not in [alias.asname or alias.name for alias in node.names]:
                    continue
                base = ".".join([*(up[: len(up) - node.level + 1] if node.level else []), *filter(None, [node.module])])
                there = self.find(base, name, seen)
                if there is None and how == name and (sub := self._file(f"{base}.{name}")):
                    there = f"{base}.{name}", self._tree(sub)
                if there:
                    return there
        if sub := self._file(f"{module}.{name}"):
            return f"{module}.{name}", self._tree(sub)
        return None

    def member(self, module: str, owner: ast.ClassDef, name: str) -> ast.FunctionDef | None:
        """Return a method of a class, or of those that it is made from."""
        for node in owner.body:
            if isinstance(node, ast.FunctionDef) and node.name == name:
                return node
        for base in owner.bases:
            there = self.find(module, _dotted(base)[-1])
            if there and isinstance(there[1], ast.ClassDef) and (found := self.member(*there, name)):
                return found
        return None

    def signature(self, dotted: str) -> dict[str, object] | None:
        """Return what can be given to a name: `names` in their order, how many are `needed`, `any` further ones."""
        words = dotted.split(".")
        # The longest part that is a module, as a package may have something else under a module's name.
        length = next(length for length in range(len(words), 0, -1) if self._file(".".join(words[:length])))
        start = ".".join(words[:length])
        there: Found | None = (start, self._tree(self._file(start) or Path()))
        for word in words[length:]:
            if there is None:
                return None
            module, node = there
            if isinstance(node, ast.ClassDef):
                method = self.member(module, node, word)
                there = (module, method) if method else None
            else:
                there = self.find(module, word)
        if there is None:
            return None
        module, node = there
        if isinstance(node, ast.ClassDef):
            node = self.member(module, node, "__init__")
        if not isinstance(node, ast.FunctionDef):
            return {"names": [], "needed": 0, "any": True}
        arguments = [argument.arg for argument in (*node.args.posonlyargs, *node.args.args)]
        own = arguments[:1] in (["self"], ["cls"])
        return {
            "names": [*arguments[own:], *(argument.arg for argument in node.args.kwonlyargs)],
            "needed": len(arguments) - own - len(node.args.defaults),
            "any": bool(node.args.vararg or node.args.kwarg),
        }


def recorded() -> dict[str, dict[str, object]]:
    """Return signatures by release and name."""
    releases: dict[str, dict[str, object]] = {}
    for name, signatures in json.loads(RECORD.read_text()).items():
        for equal, signature in signatures.items():
            for release in equal.split():
                releases.setdefault(release, {})[name] = signature
    return releases


def _line(name: str, releases: dict[str, dict[str, object]]) -> str:
    """Return the line of one name: its signatures, each by the releases that have it."""
    equal: dict[str, list[str]] = {}
    for release in sorted(releases, key=lambda text: [int(part) for part in text.split(".")]):
        if name in releases[release]:
            equal.setdefault(json.dumps(releases[release][name]), []).append(release)
    signatures = ", ".join(f"{json.dumps(' '.join(which))}: {signature}" for signature, which in equal.items())
    return f"  {json.dumps(name)}: {{{signatures}}}"


if __name__ == "__main__":
    sources = Sources(Path(sys.argv[1]))
    names = sorted({use.name for use in uses()} | set(OVERRIDDEN))
    releases = {**recorded(), sys.argv[2]: {name: sources.signature(name) for name in names}}
    RECORD.write_text("{\n" + ",\n".join(_line(name, releases) for name in names) + "\n}\n")
