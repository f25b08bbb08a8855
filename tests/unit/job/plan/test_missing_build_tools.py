"""Jobs that compile extensions while they run: their detection, and the warning where a node cannot compile."""

import pytest
from ansible.module_utils.trainyard.job.plan import missing_build_tools
from ansible.module_utils.trainyard.job.schedulers.records import Source
from ansible.module_utils.trainyard_node.machine.tree import Tree
from ansible.module_utils.trainyard_node.software.build_tools import build_tools as there
from job_samples import VENV, make_job, member, packed, planned

ALL = ["Python.h", "c++", "ninja"]


def warnings(files, *tools, **job):
    """Return the warnings of a plan on nodes with these build tools, by host."""
    members = [member(number, build_tools=each) for number, each in enumerate(tools)]
    plan, findings = planned(make_job(**job), members, source=packed(files))
    assert findings == []
    return {each.host: each for each in plan.warnings}


@pytest.mark.parametrize(
    ("files", "job", "why"),
    [
        ({"train.py": "import os\nimport deepspeed\n"}, {}, "DeepSpeed (train.py)"),
        ({"train.py": "def f():\n    from deepspeed.ops.adam import FusedAdam\n"}, {}, "DeepSpeed (train.py)"),
        ({"train.py": "from torch.utils.cpp_extension import load\n"}, {}, "torch.utils.cpp_extension (train.py)"),
        ({"train.py": "import triton.language as tl\n"}, {}, "Triton (train.py)"),
        ({"train.py": "model = torch.compile(model)\n"}, {}, "torch.compile (train.py)"),
        # By way of other files of job_source, those alone that the script imports.
        ({"train.py": "from model import net\n", "model.py": "torch.compile(x)"}, {}, "torch.compile (model.py)"),
        ({"train.py": "import a.b\n", "a/b.py": "from . import c", "a/c.py": "import triton"}, {}, "Triton (a/c.py)"),
        ({"train.py": "from a import c\n", "a/c.py": "import triton"}, {}, "Triton (a/c.py)"),
        ({"train.py": "", "other.py": "import deepspeed"}, {}, ""),
        ({"train.py": "# import deepspeed and torch.compile\nimport deepspeedometer\n"}, {}, ""),
        ({"train.py": ""}, {"command": ["python", "train.py", "--deepspeed", "ds.json"]}, "DeepSpeed (job_command)"),
        ({"train.py": ""}, {"env": {"ACCELERATE_USE_DEEPSPEED": "true"}}, "DeepSpeed (job_env)"),
        ({"train.py": ""}, {"env": {"ACCELERATE_DYNAMO_BACKEND": "INDUCTOR"}}, "torch.compile (job_env)"),
        ({"train.py": ""}, {"env": {"ACCELERATE_DYNAMO_BACKEND": "NO", "ACCELERATE_USE_DEEPSPEED": "false"}}, ""),
        ({"train.py": "import torch\nimport torch"}, {"command": ["python", "train.py", "--lr", "1"]}, ""),
    ],
)
def test_a_job_that_compiles_is_known_by_its_script_its_command_or_its_environment(files, job, why):
    found = warnings(files, ALL, [], **job)
    assert list(found) == (["n2"] if why else [])
    assert f"for {why}" in (found["n2"].found if why else "for ")


def test_missing_build_tools_are_warnings_with_an_action():
    found = warnings({"train.py": "import deepspeed"}, [], ["Python.h", "c++"], ["c++", "ninja"], ALL)
    compiler, ninja = "set python_runtime_compiler: true", "add ninja to the environment's packages"
    for host, missing, actions in (
        ("n1", "Python.h, c++, ninja", [compiler, ninja]),
        ("n2", "ninja", [ninja]),
        ("n3", "Python.h", [compiler]),
    ):
        warning = found.pop(host)
        assert warning.check == "compiler" and warning.found.startswith(f"no {missing} for DeepSpeed (train.py)")
        assert [action for action in (compiler, ninja) if action in warning.action] == actions
    assert found == {}


def test_triton_needs_no_ninja_and_a_job_may_bring_its_own_compiler():
    files = {"train.py": "import triton"}
    assert warnings(files, ["Python.h", "c++"]) == {}
    for variable in ("CC", "CXX"):
        assert warnings(files, [], env={variable: "/opt/gcc/bin/g++"}) == {}


def test_facts_without_build_tools_give_no_warning_and_a_circle_of_imports_ends():
    job, files = make_job(), packed({"train.py": "import train, model\n", "model.py": "import train, triton"})
    assert missing_build_tools.warnings(job, [member(0)], files.texts(".py")) == []
    assert [
        each.host for each in missing_build_tools.warnings(job, [member(0, build_tools=[])], files.texts(".py"))
    ] == ["n1"]


def test_source_that_is_no_archive_has_no_texts():
    assert Source(["train.py"], b"no archive").texts(".py") == {}


@pytest.mark.parametrize(
    ("files", "found"),
    [
        ([], []),
        (["usr/bin/c++", "usr/include/python3.11/Python.h", f"{VENV}/bin/ninja"], ALL),
        (["usr/bin/clang++", "usr/include/python3.9/Python.h"], ["c++"]),
        # conda's Python, which has its own headers.
        ([f"{VENV}/bin/g++", f"{VENV}/include/python3.11/Python.h"], ["Python.h", "c++"]),
    ],
)
def test_the_build_tools_of_a_node(tmp_path, files, found):
    for name in (*files, f"{VENV}/pyvenv.cfg"):
        path = tmp_path / name.lstrip("/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("home = /usr/bin\nversion = 3.11.2\n")
    assert there(Tree(str(tmp_path)), VENV) == found
    (tmp_path / VENV.lstrip("/") / "pyvenv.cfg").write_text("home = /opt/python/bin\nversion = 3.11.2\n")
    headers = tmp_path / "opt/python/include/python3.11/Python.h"
    headers.parent.mkdir(parents=True)
    headers.touch()
    assert "Python.h" in there(Tree(str(tmp_path)), VENV)
