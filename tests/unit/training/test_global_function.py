"""OneFlow's first way to train, against the recorded signatures of the releases that have it."""

from __future__ import annotations

import inspect
import json
import sys
from pathlib import Path
from types import SimpleNamespace

import global_function
import numpy as np
import pytest

SIGNATURES = json.loads((Path(__file__).parents[2] / "fixtures/oneflow/signatures.json").read_text())
CLUSTER = {"ONEFLOW_MACHINES": "10.0.0.1,10.0.0.2", "ONEFLOW_CTRL_PORT": "9988", "ONEFLOW_DEVICE_NUM": "4"}


def bound(parameters, given, named):
    """The arguments of a call by name; TypeError where the release's function does not take them."""
    kinds = inspect.Parameter
    signature = inspect.Signature(
        [
            kinds(each[1:], kinds.VAR_POSITIONAL)
            if each.startswith("*")
            else kinds(
                each.rstrip("="), kinds.POSITIONAL_OR_KEYWORD, default=None if each.endswith("=") else kinds.empty
            )
            for each in parameters
        ]
    )
    return dict(signature.bind(*given, **named).arguments)


class Release:
    """A module `oneflow` that takes what the recorded release takes, and notes it in order."""

    def __init__(self, version):
        self.calls, self.module = [], SimpleNamespace(__version__=version, float="float", int32="int32")
        for name, recorded in SIGNATURES[version].items():
            *folders, last = name.split(".")
            place = self.module
            for folder in folders:
                place.__dict__.setdefault(folder, SimpleNamespace())
                place = getattr(place, folder)
            setattr(place, last, self.object(name, recorded))
        self.module.global_function = self.global_function

    def note(self, name, parameters):
        def call(*given, **named):
            self.calls.append((name, bound(parameters, given, named)))
            return SimpleNamespace(minimize=lambda loss: self.calls.append(("minimize", {"loss": loss})), name=name)

        return call

    def object(self, name, recorded):
        if isinstance(recorded, list):
            return self.note(name, recorded)
        methods = {method: self.note(f"{name}.{method}", parameters) for method, parameters in recorded.items()}
        make = methods.pop("__init__", None)
        if make is None:
            return SimpleNamespace(**methods)
        return lambda *given, **named: SimpleNamespace(**{**vars(make(*given, **named)), **methods})

    def global_function(self, *given, **named):
        assert bound(SIGNATURES[self.module.__version__]["global_function"], given, named) == {"type": "train"}

        def decorate(function):
            signature = inspect.signature(function)
            assert not any(isinstance(each.annotation, str) for each in signature.parameters.values())
            placeholders = [calls for name, calls in self.calls if name == "typing.Numpy.Placeholder"]
            function(*signature.parameters)  # the graph is built once
            self.calls.append(("global function", {}))

            def step(images, labels):
                for array, placeholder in zip((images, labels), placeholders):
                    assert (array.shape, str(array.dtype)) == (
                        placeholder["shape"],
                        {"float": "float32", "int32": "int32"}[placeholder["dtype"]],
                    )
                return np.full(len(labels), 2.5)

            return step

        return decorate


@pytest.fixture(params=SIGNATURES)
def release(request, monkeypatch):
    made = Release(request.param)
    monkeypatch.setitem(sys.modules, "oneflow", made.module)
    for name, value in CLUSTER.items():
        monkeypatch.setenv(name, value)
    return made


def run(monkeypatch, *arguments):
    monkeypatch.setattr(sys, "argv", ["global_function.py", *arguments])
    return global_function.main()


def test_the_guides_program_on_two_machines_with_four_devices_each(release, monkeypatch, capsys, tmp_path):
    given = ("--dataset=random", "--random-size=300", "--epochs=2", f"--save={tmp_path / 'parameters'}")
    assert run(monkeypatch, *given) == 0
    calls = dict(release.calls)
    assert calls["config.gpu_device_num"] == {"val": 4}
    assert calls["env.ctrl_port"] == {"val": 9988}
    assert calls["env.machine"] == {"val": ([{"addr": "10.0.0.1"}, {"addr": "10.0.0.2"}],)}
    order = [name for name, _ in release.calls]
    # Once the function is defined the cluster can no longer be said.
    assert max(order.index(name) for name in calls if name.startswith(("config.", "env."))) < order.index(
        "random_normal_initializer"
    )
    assert calls["minimize"]["loss"].name == "nn.sparse_softmax_cross_entropy_with_logits"
    saved = (
        "checkpoint.save" if "checkpoint.save" in SIGNATURES[release.module.__version__] else "train.CheckPoint.save"
    )
    assert calls[saved] == {"path": str(tmp_path / "parameters")}
    said = capsys.readouterr().out.splitlines()
    assert said[0] == "step 1/6 epoch 1 loss 2.5000" and said[-2].startswith("step 6/6 epoch 2")


def test_one_machine_needs_neither_list_nor_port(release, monkeypatch):
    monkeypatch.setenv("ONEFLOW_MACHINES", "10.0.0.1")
    assert run(monkeypatch, "--dataset=random", "--random-size=100", "--epochs=1") == 0
    assert not {"env.machine", "env.ctrl_port"} & {name for name, _ in release.calls}


def test_each_problem_is_one_line(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "oneflow", SimpleNamespace(__version__="0.9.0"))
    assert run(monkeypatch, "--dataset=random") == global_function.WRONG_INPUT
    assert "ONEFLOW_MACHINES, ONEFLOW_CTRL_PORT, ONEFLOW_DEVICE_NUM not set: start" in capsys.readouterr().err
    for name, value in CLUSTER.items():
        monkeypatch.setenv(name, value)
    assert run(monkeypatch, "--dataset=random") == global_function.WRONG_INPUT
    assert "OneFlow 0.9.0 has no global functions, which ended with 0.4: use train.py" in capsys.readouterr().err
    release = Release("0.2.0").module
    monkeypatch.setitem(sys.modules, "oneflow", release)
    assert run(monkeypatch, "--dataset=random", "--random-size=99") == global_function.WRONG_INPUT
    assert "--batch-size 100 is larger than the 99 training pictures" in capsys.readouterr().err
