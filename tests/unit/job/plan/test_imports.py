"""Packages that a job's script imports and its Python lacks: found where that is certain, and nowhere else."""

import os
import pwd
import re
import stat
import sys
from pathlib import Path

import pytest
import yaml
from ansible.module_utils.trainyard.job.plan import script_imports
from ansible.module_utils.trainyard_controller.job import source_folder
from ansible.module_utils.trainyard_node.job.plan import import_check
from job_samples import briefly

PROJECT = Path(__file__).resolve().parents[4]
ME = pwd.getpwuid(os.getuid()).pw_name


@pytest.mark.parametrize(
    ("command", "script"),
    [
        (["python", "train.py", "--lr=1"], "train.py"),
        (["/opt/venv/bin/python3.11", "-u", "-X", "dev", "./src/train.py"], "./src/train.py"),
        (["python", "/srv/train.py"], "/srv/train.py"),
        (["python", "-c", "import x", "train.py"], ""),
        (["bash", "-c", "exec python train.py"], ""),
        *((line.split(), "") for line in ("python -m train", "python -I train.py", "python --version", "python")),
        *((line.split(), "") for line in ("bash run.sh", "./train.py", "pythonic t.py", "conda run python train.py")),
    ],
)
def test_the_script_that_python_itself_runs(command, script):
    assert script_imports.script(command) == script


@pytest.mark.parametrize(
    ("text", "names"),
    [
        (
            "import os, sklearn.datasets as d\nfrom torch.utils import data\n",
            ["os", "sklearn.datasets", "torch.utils:data"],
        ),
        ("from . import a\nfrom .b import c\n", []),
        ("try:\n    import apex\nexcept ImportError:\n    apex = None\nimport torch\n", ["torch"]),
        ("import sys\nif sys.argv:\n    import wandb\n", ["sys"]),
        ("def f():\n    import wandb\n", []),
        ("from contextlib import suppress\nwith suppress(ImportError):\n    import wandb\n", ["contextlib:suppress"]),
        ("from oneflow import typing as tp, nn\nfrom a.b import *\n", ["oneflow.typing", "oneflow:nn", "a.b"]),
        ("import sys\nsys.path.append('/srv/lib')\nimport mine\n", []),
        ("import subprocess\nsubprocess.run(['pip', 'install', 'x'])\nimport x\n", []),
        ("import model, models.resnet, data_utils, fast, torch\n", ["torch"]),
        ("print 'Python 2'\n", []),
        ("import x\0", []),
        ("", []),
    ],
)
def test_only_unconditional_imports_of_a_script_count(text, names):
    beside = ["train.py", "model.py", "models/resnet.py", "src/data_utils/__init__.py", "fast.cpython-311-x86.so"]
    assert script_imports.imported(text, beside) == names
    # Start-up code of the job may install anything.
    assert script_imports.imported(text, ["train.py", "sitecustomize.py"]) == []


@pytest.mark.parametrize(
    ("environment", "secret", "known"),
    [
        ({}, ["TOKEN"], True),
        ({"PYTHONPATH": "/srv/lib:lib"}, [], True),
        ({"PYTHONPATH": "lib.zip"}, [], False),
        ({}, ["PYTHONPATH"], False),
    ],
)
def test_an_unknown_path_ends_the_check(environment, secret, known):
    assert script_imports.is_known(environment, secret) is known


def found_by(node_plan, user=ME):
    return import_check.findings(node_plan, import_check.missing(node_plan, user, {}).imports)


@pytest.fixture
def spec(tmp_path):
    """Return a function that makes the node plan of a job whose script imports these names."""
    (tmp_path / "pytorch/bin").mkdir(parents=True)
    python = tmp_path / "pytorch/bin/python"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    for folder in (tmp_path, *tmp_path.parents[:2]):
        folder.chmod(folder.stat().st_mode | stat.S_IXOTH | stat.S_IROTH)

    def make(*names, script="train.py", environment=None, **more):
        entry = {"script": script, "imports": list(names), "environment": environment or {}}
        path = f"{tmp_path}/pytorch/bin:/usr/bin:/bin"
        spec = {"host": "n1", "program": "python", "program_path": path, "venv": str(tmp_path / "pytorch")}
        return {**spec, "entry": entry, **more}

    return make


def test_missing_packages_are_findings_with_the_way_to_install_them(spec, tmp_path):
    assert found_by(spec("os", "pytest", "json")) == []
    python = f"{tmp_path}/pytorch/bin/python"
    assert briefly(found_by(spec("os", "no_such_sklearn", "pytest", "no_such_b"))) == [
        ("n1", "imports", f"train.py imports no_such_sklearn, no_such_b, which {python} does not have")
    ]


# Packages with modules that are no files of theirs, or whose names come from elsewhere.
PACKAGES = {
    "plain/__init__.py": "import os\nvalue = 1\n",
    "plain/sub/__init__.py": "",
    "plain/sub/deep.py": "",
    "makes/__init__.py": "import sys\nsys.modules['makes.sub'] = sys\n",
    "finds/__init__.py": "__path__.append('/elsewhere')\n",
    "shares/__init__.py": "from os import *\n",
    "lazy/__init__.py": "def __getattr__(name):\n    return name\n",
    "space/sub.py": "",
    "single.py": "raise SystemExit\n",
    "damaged/__init__.py": "# coding: none\n",
}


@pytest.mark.parametrize(
    ("name", "missing"),
    [
        *(
            (name, "")
            for name in ("plain.sub", "plain.sub.deep", "plain:sub", "plain:value", "plain.sub:deep", "os.path")
        ),
        *((name, "plain.typing") for name in ("plain.typing", "plain.typing.x", "plain:typing", "plain.typing:Numpy")),
        ("plain.sub:none", "plain.sub.none"),
        *((name, "") for name in ("makes.sub", "makes:sub", "finds.any", "shares:getcwd", "lazy:any", "single.x")),
        *((name, name) for name in ("shares.any", "lazy.any", "space.none")),
        *((name, "") for name in ("space.sub", "space:sub", "single:x", "xml.etree.ElementTree", "pytest:fixture")),
        ("space:none", "space.none"),
        ("none.sub", "none"),
        ("none:sub", "none"),
    ],
)
def test_a_missing_submodule_is_found_where_its_package_surely_lacks_it(spec, tmp_path, name, missing):
    for file, text in PACKAGES.items():
        (tmp_path / "lib" / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "lib" / file).write_text(text)
    python = f"{tmp_path}/pytorch/bin/python"
    found = [f"train.py imports {missing}, which {python} does not have"] if missing else []
    names = ["damaged.x", "os", name]
    got = found_by(spec(*names, environment={"PYTHONPATH": str(tmp_path / "lib")}))
    assert [each.found for each in got] == found


def test_the_first_guides_module_of_oneflow_names_its_releases(spec, tmp_path):
    (tmp_path / "oneflow").mkdir()
    (tmp_path / "oneflow/__init__.py").write_text("from oneflow.framework.type_tensor import *\n")
    for text in ("import oneflow.typing as tp", "from oneflow import typing as tp", "from oneflow.typing import Numpy"):
        names = script_imports.imported(f"import oneflow as flow\n{text}\n")
        (found,) = found_by(spec(*names, environment={"PYTHONPATH": str(tmp_path)}))
        assert found.found.startswith("train.py imports oneflow.typing, which")
        assert "OneFlow up to 0.4" in found.action and "job_image" in found.action


@pytest.mark.parametrize(
    ("missing", "venv", "action"),
    [
        (["sklearn", "cv2"], "pytorch", "add scikit-learn, opencv-python-headless to pytorch_extra_packages"),
        (["torchvision"], "pytorch", "set pytorch_torchvision: auto, and run site.yml"),
        (["PIL"], "mindspore", "add pillow to mindspore_extra_packages, each as NAME==VERSION, and run site.yml"),
        (["torch"], "mindspore", "set job_venv to the environment that has torch"),
        (["yaml"], "mine", "install PyYAML for that Python on the nodes"),
        (["torch.none"], "pytorch", "set job_venv or job_image to an environment with an earlier or newer release"),
        (
            ["cv2", "sklearn.none"],
            "mine",
            "install opencv-python-headless for that Python on the nodes, and set job_venv",
        ),
    ],
)
def test_each_missing_package_has_an_action(missing, venv, action):
    found = script_imports.finding("n1", "train.py", missing, f"/v/{venv}/bin/python", f"/v/{venv}")
    assert found.action.startswith(action)


def test_the_python_gets_nothing_of_the_agents_environment(spec, tmp_path, monkeypatch):
    monkeypatch.setenv("SECRET", "x")
    (tmp_path / "seen").mkdir(mode=0o777)
    (tmp_path / "seen").chmod(0o777)
    (tmp_path / "pytorch/bin/python").write_text(f"#!/bin/sh\nenv > {tmp_path}/seen/env\n")
    assert found_by(spec("x", environment={"PYTHONPATH": "/srv"})) == []
    names = {line.partition("=")[0] for line in (tmp_path / "seen/env").read_text().splitlines()}
    assert names - {"PWD", "_", "SHLVL", "OLDPWD"} == {"PATH", "LC_ALL", "HOME", "PYTHONPATH"}


def test_nothing_of_the_package_is_run(spec, tmp_path):
    (tmp_path / "loud.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    assert found_by(spec("loud", environment={"PYTHONPATH": str(tmp_path)})) == []
    assert found_by(spec("loud")) != []
    assert not (tmp_path / "ran").exists()


def test_a_script_on_the_nodes_is_read_there_with_what_is_beside_it(spec, tmp_path):
    script = tmp_path / "srv/train.py"
    script.parent.mkdir()
    (tmp_path / "srv/helper.py").touch()
    script.write_text("import helper, no_such_package\n")
    found = found_by(spec(script=str(script)))
    assert [one.found.partition(",")[0] for one in found] == [f"{script} imports no_such_package"]
    assert found_by(spec(script=str(tmp_path / "none.py"))) == []
    os.mkfifo(tmp_path / "pipe.py")
    assert found_by(spec(script=str(tmp_path / "pipe.py"))) == []


@pytest.mark.parametrize("body", ["exit 1", "echo no_such_package; exit 1", "echo other", "sleep 60"])
def test_a_python_that_does_not_answer_says_nothing(spec, tmp_path, monkeypatch, body):
    monkeypatch.setattr(import_check, "LIMIT_S", 0.5)
    (tmp_path / "pytorch/bin/python").write_text(f"#!/bin/sh\nexec 2>&1\n{body.replace('sleep', 'exec sleep')}\n")
    assert found_by(spec("no_such_package")) == []
    assert found_by(spec("no_such_package", program="none")) == []
    assert found_by(spec("no_such_package"), "no-such-user") == []


def test_no_example_of_the_project_is_suspected():
    suspected = {}
    for path in sorted((PROJECT / "jobs").glob("*.yml")):
        job = yaml.safe_load(path.read_text())
        name = script_imports.script(job["job_command"])
        folder = PROJECT / job.get("job_source", "none")
        if name and (folder / name).is_file():
            names = script_imports.imported((folder / name).read_text(), source_folder.read(str(folder)).files)
            suspected[path.name] = {re.split("[.:]", each)[0] for each in names} - sys.stdlib_module_names
    assert len(suspected) > 5
    assert set().union(*suspected.values()) <= {"torch", "torchvision", "numpy", "mindspore", "oneflow", "mpi4py"}
