"""Jobs that compile extensions while they run: how they are known, and the warning where a node cannot compile."""

from __future__ import annotations

import io
import tarfile

import pytest
from ansible.module_utils.trainyard.job import schedulers
from ansible.module_utils.trainyard.job.plan import build_tools
from ansible.module_utils.trainyard.job.schedulers.records import Source, Where
from ansible.module_utils.trainyard_node.machine.tree import Tree
from ansible.module_utils.trainyard_node.software.build_tools import build_tools as there
from job_samples import VENV, make_job, member

ALL = ["Python.h", "c++", "ninja"]


def source(**files):
    """The packed job_source with these files; `__` in a name is a folder, and `.py` is left out."""
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w:gz") as archive:
        for name, text in files.items():
            info = tarfile.TarInfo(f"{name.replace('__', '/')}.py")
            info.size = len(text.encode())
            archive.addfile(info, io.BytesIO(text.encode()))
    return Source([f"{name.replace('__', '/')}.py" for name in files], content.getvalue())


def warnings(files, *tools, **job):
    """Return the warnings of a plan on nodes with these build tools, by host."""
    members = [member(number, build_tools=each) for number, each in enumerate(tools)]
    where = Where("digits-1", "now", "", "/var/lib/trainyard", "train")
    plan, findings = schedulers.plan(make_job(**job), members, source(**files), where)
    assert findings == []
    return {each.host: each for each in plan.warnings}


@pytest.mark.parametrize(
    ("files", "job", "why"),
    [
        ({"train": "import os\nimport deepspeed\n"}, {}, "DeepSpeed (train.py)"),
        ({"train": "def f():\n    from deepspeed.ops.adam import FusedAdam\n"}, {}, "DeepSpeed (train.py)"),
        ({"train": "from torch.utils.cpp_extension import load\n"}, {}, "torch.utils.cpp_extension (train.py)"),
        ({"train": "import triton.language as tl\n"}, {}, "Triton (train.py)"),
        ({"train": "model = torch.compile(model)\n"}, {}, "torch.compile (train.py)"),
        # By way of other files of job_source, those alone that the script imports.
        ({"train": "from model import net\n", "model": "torch.compile(x)"}, {}, "torch.compile (model.py)"),
        ({"train": "import a.b\n", "a__b": "from . import c", "a__c": "import triton"}, {}, "Triton (a/c.py)"),
        ({"train": "from a import c\n", "a__c": "import triton"}, {}, "Triton (a/c.py)"),
        ({"train": "", "other": "import deepspeed"}, {}, ""),
        ({"train": "# import deepspeed and torch.compile\nimport deepspeedometer\n"}, {}, ""),
        ({"train": ""}, {"command": ["python", "train.py", "--deepspeed", "ds.json"]}, "DeepSpeed (job_command)"),
        ({"train": ""}, {"env": {"ACCELERATE_USE_DEEPSPEED": "true"}}, "DeepSpeed (job_env)"),
        ({"train": ""}, {"env": {"ACCELERATE_DYNAMO_BACKEND": "INDUCTOR"}}, "torch.compile (job_env)"),
        ({"train": ""}, {"env": {"ACCELERATE_DYNAMO_BACKEND": "NO", "ACCELERATE_USE_DEEPSPEED": "false"}}, ""),
        ({"train": "import torch\nimport torch"}, {"command": ["python", "train.py", "--lr", "1"]}, ""),
    ],
)
def test_a_job_that_compiles_is_known_by_its_script_its_command_or_its_environment(files, job, why):
    found = warnings(files, ALL, [], **job)
    assert list(found) == (["n2"] if why else [])
    assert f"for {why}" in (found["n2"].found if why else "for ")


def test_missing_build_tools_are_warnings_with_an_action():
    files = {"train": "import deepspeed"}
    found = warnings(files, [], ["Python.h", "c++"], ["c++", "ninja"], ALL)
    assert [each.as_dict() for each in found.values()] == [
        {
            "host": host,
            "check": "compiler",
            "found": f"no {lacking} for DeepSpeed (train.py), which compiles extensions while the job runs",
            "expected": "the headers of the job's Python, a compiler for C++ and ninja",
            "action": action,
        }
        for host, lacking, action in (
            (
                "n1",
                "Python.h, c++, ninja",
                "set python_runtime_compiler: true, add ninja to the environment's packages (pytorch_extra_packages or "
                "its like), and run site.yml",
            ),
            (
                "n2",
                "ninja",
                "add ninja to the environment's packages (pytorch_extra_packages or its like), and run site.yml",
            ),
            ("n3", "Python.h", "set python_runtime_compiler: true, and run site.yml"),
        )
    ]


def test_triton_and_compile_need_no_ninja_and_a_compiler_of_the_jobs_own_is_its_own_matter():
    assert warnings({"train": "import triton"}, ["Python.h", "c++"]) == {}
    assert warnings({"train": "import triton"}, [], env={"CXX": "/opt/gcc/bin/g++"}) == {}
    assert warnings({"train": "import triton"}, [], env={"CC": "/opt/gcc/bin/gcc"}) == {}


def test_facts_from_before_say_nothing_and_a_circle_of_imports_ends():
    job, files = make_job(), source(train="import train, model\n", model="import train, triton")
    assert build_tools.warnings(job, [member(0)], files.texts(".py")) == []
    assert [each.host for each in build_tools.warnings(job, [member(0, build_tools=[])], files.texts(".py"))] == ["n1"]


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
