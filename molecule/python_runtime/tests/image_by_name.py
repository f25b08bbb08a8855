"""playbooks/image.yml with the Podman of the lab's own machine: an image is built once, and the same again."""

import json
import os
import re
import subprocess
import zipfile

import pytest
from lab_jobs import LAB, PROJECT

# The package torch of these images: as much of it as the check of the role pytorch uses.
TORCH = """
from types import SimpleNamespace
__version__, version, cuda = "2.13.0", SimpleNamespace(cuda=None), SimpleNamespace(device_count=int)
class Value(float):
    item = float
class Values(list):
    tolist = list.copy
def full(shape, value):
    return Values(shape[0] * [Value(value)])
"""
DISTRIBUTED = """
from . import Value
def init_process_group(*_, **__): pass
def all_reduce(values): values[:] = 4 * [Value(3)]
def destroy_process_group(): pass
"""
METADATA = "Metadata-Version: 2.1\nName: torch\nVersion: 2.13.0\n"
WHEEL = "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"


def podman(*words):
    done = subprocess.run(["podman", *words], capture_output=True, text=True, check=False)
    return done.returncode, done.stdout.strip()


@pytest.fixture(scope="module")
def wheels(tmp_path_factory):
    """Return a folder with a wheel that takes the place of torch."""
    folder = tmp_path_factory.mktemp("wheels")
    with zipfile.ZipFile(folder / "torch-2.13.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr("torch/__init__.py", TORCH)
        wheel.writestr("torch/distributed.py", DISTRIBUTED)
        for name, text in {"METADATA": METADATA, "WHEEL": WHEEL, "RECORD": ""}.items():
            wheel.writestr(f"torch-2.13.0.dist-info/{name}", text)
    return folder


@pytest.fixture(scope="module")
def build(run_playbook, node_names, wheels):
    """Run image.yml on this machine, which has the lab's image; remove the images that it has made."""
    before = os.environ.get("CONTAINERS_CONF")
    os.environ["CONTAINERS_CONF"] = str(PROJECT / "molecule/default/containers.conf")
    # It becomes a part of the name of the environment's path, so the images are no others' images.
    root = f"/opt/{LAB}-image"
    _, base = podman("container", "inspect", "--format", "{{.ImageName}}", f"{LAB}-{node_names[0]}")
    settings = {
        **{"image_framework": "pytorch", "image_host": "localhost", "image_base": base},
        **{"trainyard_become": False, "trainyard_root": root, "pytorch_packages": [], "pytorch_constraints": []},
        **{"pytorch_find_links": [str(wheels)], "pytorch_no_index": True, "pytorch_require_hashes": False},
        "pytorch_min_free_mb": 50,
    }
    yield lambda *arguments, **given: run_playbook("playbooks/image.yml", *arguments, **{**settings, **given})
    _, made = podman("images", "--quiet", "--no-trunc", "--filter", f"label=trainyard.environment={root}/venvs/pytorch")
    for each in set(made.split()):
        podman("rmi", "--force", each)
    os.environ.pop("CONTAINERS_CONF")
    os.environ.update({"CONTAINERS_CONF": before} if before else {})


def test_an_image_is_built_once_and_the_same_again(build, tmp_path, wheels):
    archive = tmp_path / "images/torch.tar"
    preview = build("--check", image_file=str(archive)).expect(0, "is not there", "would be built")
    name = re.search(r"localhost/trainyard/pytorch:2\.13\.0-[0-9a-f]{12}", preview.text)[0]
    assert podman("image", "exists", name)[0] == 1 and not archive.exists()

    made = build(image_file=str(archive)).expect(0, f"job_image: oci-archive:{archive}")
    identity = re.search(r"id +([0-9a-f]{64})", made.text)[1]
    build(image_file=str(archive)).expect(0, "nothing to do", identity).changes_nothing()

    python = f"/opt/{LAB}-image/venvs/pytorch/bin/python"
    inside = ("run", "--rm", "--network=none", "--user=65534", f"--entrypoint={python}", name, "-c")
    assert podman(*inside, "import torch; print(torch.__version__)") == (0, "2.13.0")
    # Neither the wheels' folder nor pip's configuration is in it.
    search = f"import os; print([os.path.exists(each) for each in ({str(wheels)!r}, '/run/trainyard-build')])"
    assert podman(*inside, search) == (0, "[False, False]")
    labels = json.loads(podman("image", "inspect", name)[1])[0]["Labels"]
    assert labels["trainyard.versions"] == "torch==2.13.0" and labels["trainyard.lock"][:12] == name[-12:]

    podman("rmi", name)
    build(image_file="").expect(0, "is not there", identity)
