"""The execution environment, built with Podman, and the playbooks of `make demo` in it.

It takes minutes, the packages of PyTorch, and root, so it runs by name: make lab-packages, then
pytest tests/images/execution_environment_by_name.py.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parents[2]
IMAGE = "localhost/trainyard-ee-test"
# Nobody on this machine.
UID = 12345
LOCAL = ("-i", "inventories/localhost")
# A verification in which nothing is checked: one node, without a bandwidth to measure.
UNKNOWN = ("playbooks/verify.yml", "-e", "verify_phases=[bandwidth]")


def run(*argv: str | Path, status: int = 0, **options: object) -> str:
    """Return what a program prints, which has to end with this status."""
    shared = {"cwd": PROJECT, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True, "check": False}
    done = subprocess.run(list(map(str, argv)), **{**shared, **options})
    assert done.returncode == status, done.stdout
    return done.stdout


@pytest.fixture(scope="module")
def volumes(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Options that let pip in a container reach what it reaches on this machine."""
    entries, paths = [], set()
    for line in run("pip", "config", "list").splitlines():
        name, _, value = line.partition("=")
        if not name.startswith(":env:"):
            entries.append(f"{name.partition('.')[2]} = {shlex.split(value)[0]}")
        # The files of an index in a folder lie beside it.
        paths |= {Path(each).parent for each in re.findall(r"file://(/[^\s']+)", value)}
        paths |= {Path(each) for each in re.findall(r"(?<![:/\w])(/[^\s']+)", value)}
    file = tmp_path_factory.mktemp("pip") / "pip.conf"
    file.write_text("\n".join(["[global]", *entries]) + "\n")
    shared = [f"--volume={path}:{path}:ro" for path in sorted(paths) if path.exists()]
    return ["--network=host", f"--volume={file}:/etc/pip.conf:ro", *shared]


@pytest.fixture(scope="module")
def image(volumes: list[str]) -> Iterator[str]:
    """The image, on the one of the lab's nodes with Debian 13; removed at the end."""
    before = os.environ.get("CONTAINERS_CONF")
    os.environ["CONTAINERS_CONF"] = str(PROJECT / "molecule/default/containers.conf")
    base = run(PROJECT / "molecule/default/image/build", "trixie", PROJECT / ".cache").split()[-1]
    run("make", "execution-environment", f"IMAGE={IMAGE}", f"BASE={base}", f"BUILD={' '.join(volumes)}")
    yield IMAGE
    run("podman", "rmi", "--force", IMAGE)
    os.environ.pop("CONTAINERS_CONF")
    os.environ.update({"CONTAINERS_CONF": before} if before else {})


@pytest.fixture
def private(tmp_path: Path) -> Path:
    """A folder of ansible-runner: an inventory, and a clone without anything that a run leaves as the project."""
    folder = tmp_path / "private"
    (folder / "project").mkdir(parents=True)
    run("bash", "-c", 'git ls-files -z | xargs -0 cp --parents --no-dereference -t "$0"', folder / "project")
    shutil.copytree(PROJECT / "inventories/localhost", folder / "inventory")
    for path in (folder, *folder.rglob("*")):
        os.chown(path, UID, 0, follow_symlinks=False)
    # pytest's own folders are root's alone.
    for path in (tmp_path, tmp_path.parent, tmp_path.parent.parent):
        path.chmod(0o755)
    return folder


def test_the_image_has_what_make_controller_installs_and_nothing_of_the_build(image: str) -> None:
    listed = run("podman", "run", "--rm", image, "pip", "list", "--format=freeze")
    found = {line.lower().replace("_", "-") for line in listed.split()}
    text = "".join((PROJECT / f"requirements/{name}.txt").read_text() for name in ("controller", "kubernetes"))
    pins = {pin for pin in re.findall(r"^(\S+==\S+)", text, re.MULTILINE) if not pin.startswith("ansible-core==2.19")}
    assert len(pins) > 15 and pins <= found
    assert not {each for each in found if each.startswith(("bindep==", "setuptools=="))}
    kept = run("podman", "run", "--rm", image, "find", "/etc/pip.conf", "/opt/requirements", "/output", "-size", "+0",
               status=1)  # fmt: skip
    assert "/opt/requirements/" not in kept and "/output/" not in kept
    assert "global." not in run("podman", "run", "--rm", image, "pip", "config", "list")


def test_the_demo_runs_and_its_files_are_the_users(image: str, private: Path, volumes: list[str]) -> None:
    where = [f"--volume={private}/project:/runner/project", "--workdir=/runner/project", f"--user={UID}:0"]
    demo = (
        "ansible-playbook site.yml -i inventories/localhost "
        "&& ansible-playbook launch.yml -i inventories/localhost -e @jobs/digits.yml"
    )
    output = run("podman", "run", "--rm", *volumes, *where, image, "sh", "-c", demo)
    assert re.search(r"^Job digits-\S+ succeeded", output, re.MULTILINE)
    written = [*(private / "project/runs").rglob("*")]
    assert len(written) > 10 and {path.stat().st_uid for path in written} == {UID}
    assert "nothing was checked" in run(
        "podman", "run", "--rm", *where, image, "ansible-playbook", *LOCAL, *UNKNOWN, status=3
    )


def test_status_3_survives_ansible_runner(image: str, private: Path) -> None:
    book, *options = UNKNOWN
    # argparse takes the backslash for an option's value.
    given = ["-i", "1", "-p", book, "--cmdline", f"\\{shlex.join(options)}"]
    isolated = ["--process-isolation", "--process-isolation-executable=podman", f"--container-image={image}"]
    as_root = "--container-option=--user=root"
    output = run("ansible-runner", "run", private, *given, *isolated, as_root, status=3)
    assert "nothing was checked" in output
    assert (private / "artifacts/1/status").read_text() == "failed" and (private / "artifacts/1/rc").read_text() == "3"


def test_status_3_is_in_the_record_of_a_worker_as_awx_starts_it(image: str, private: Path) -> None:
    book, *options = UNKNOWN
    given = ["-i", "1", "-p", book, "--cmdline", f"\\{shlex.join(options)}"]
    sent, done, home = (private.parent / name for name in ("sent", "done", "home"))
    with sent.open("w") as file:
        run("ansible-runner", "transmit", private, *given, stdout=file)
    worker = ("podman", "run", "--rm", "--interactive", image, "ansible-runner", "worker", "--private-data-dir=/runner")
    with sent.open() as source, done.open("w") as target:
        run(*worker, status=3, stdin=source, stdout=target, stderr=subprocess.DEVNULL)
    with done.open() as source:
        output = run("ansible-runner", "process", home, "-i", "1", stdin=source)
    assert "nothing was checked" in output
    record = home / "artifacts/1"
    assert (record / "status").read_text() == "failed" and (record / "rc").read_text() == "3"
