"""Launches with findings about job_source, its scripts and the launcher, and what readers do about them."""

from __future__ import annotations

import os

from advice_kubernetes import pods
from advice_readers import AS_WRITTEN, of_job
from advice_slurm import images, slurm
from ansible.module_utils.trainyard.job.schedulers.ssh import MAX_SOURCE
from ansible.module_utils.trainyard_controller.job import source_folder
from launch_world import World
from test_images import ARCHIVE

BASH = "#!/bin/bash\n"


def sent(folder, name="", make=lambda path: path.touch(), lines="", **job):
    """Return a launch that sends a folder with train.py and another file, and what `.gitignore` lists."""
    source = folder / "source"
    (source / "scripts").mkdir(parents=True)
    (source / "scripts/train.py").touch()
    (source / "train.py").touch()
    if name:
        make(source / name)
    if lines:
        (source / ".gitignore").write_text(lines)
        make(source / lines.strip())
    return World(**{"source": str(source), **job})


def large(path):
    with path.open("wb") as file:
        file.truncate(source_folder.MAX_BYTES + 1)


def leaving(path):
    path.symlink_to("/proc/cpuinfo")


def listed(folder, *names):
    return lambda _: (folder / "source/.trainyardignore").write_text("".join(f"{name}\n" for name in names))


def copied(folder):
    def change(_):
        (folder / "source/data").unlink()
        (folder / "source/data").touch()

    return change


def started(name, text, command=None, **job):
    """Return a launch of a program that is in its folder."""
    return World(command=command or [f"./{name}"], **job).having(files={name: text, "train.py": ""})


CASES = {
    # The folder that is sent.
    "the whole machine": lambda folder: (
        sent(folder, source="/"),
        {"name that folder as job_source": {"source": str(folder / "source")}},
    ),
    "a folder with data": lambda folder: (
        sent(folder, "data", large),
        {
            "name the folder of the scripts alone": {"source": str(folder / "source/scripts")},
            "list the other files in .trainyardignore": listed(folder, "data"),
        },
    ),
    "a folder with more data than .gitignore lists": lambda folder: (
        sent(folder, "data", large, "old\n"),
        {
            "name the folder of the scripts alone": {"source": str(folder / "source/scripts")},
            "list the other files in .trainyardignore, with the lines of .gitignore": listed(folder, "old", "data"),
        },
    ),
    "a link that leaves the folder": lambda folder: (
        sent(folder, "data", leaving),
        {"copy the files into the folder": copied(folder), "list the link in .trainyardignore": listed(folder, "data")},
    ),
    "a file that nobody may read": lambda folder: (
        sent(folder, "closed"),
        {"list it in .trainyardignore": listed(folder, "closed")},
    ),
    "a name that is not in UTF-8": lambda folder: (
        sent(folder, os.fsdecode(b"caf\xe9.txt")),
        {
            "rename it": lambda _: (folder / "source" / os.fsdecode(b"caf\xe9.txt")).rename(folder / "source/cafe.txt"),
            "list it as a pattern such as caf*.txt in .trainyardignore": listed(folder, "caf*.txt"),
        },
    ),
    "a large folder": lambda _: (
        World().having(files={"train.py": "", "data": os.urandom(MAX_SOURCE).hex()}),
        {"keep data and checkpoints elsewhere (role dataset, job_data)": lambda world: world.files.pop("data")},
    ),
    # The program that is started.
    "a script without its folder": lambda _: (
        World(command=["train.py"]),
        {"write job_command: [python3, train.py]": AS_WRITTEN},
    ),
    "a script without a first line": lambda _: (
        started("run.sh", "true\n"),
        {
            "add it": lambda world: world.files.update({"run.sh": f"{BASH}true\n"}),
            "write job_command: [bash, run.sh]": AS_WRITTEN,
        },
    ),
    "a script that is not executable": lambda folder: (
        sent(folder, "run.sh", lambda path: path.write_text(BASH), command=["./run.sh"]),
        {
            "chmod +x run.sh": lambda _: (folder / "source/run.sh").chmod(0o755),
            "write job_command: [bash, run.sh]": AS_WRITTEN,
        },
    ),
    "a script from Windows": lambda _: (
        started("run.sh", "#!/bin/bash\r\ntrue\r\n"),
        {"sed -i 's/\\r$//' run.sh": lambda world: world.files.update({"run.sh": f"{BASH}true\n"})},
    ),
    "a notebook": lambda _: (
        started("train.ipynb", "{}", command=["python", "train.ipynb"]),
        {
            "write a script from it, jupyter nbconvert --to script train.ipynb, and name train.py instead": {
                "command": ["python", "train.py"]
            }
        },
    ),
    "a script that does not wait": lambda _: (
        slurm(command=["bash", "run.sh"]).having(files={"run.sh": f"{BASH}python train.py &\n"}),
        {
            "append `wait $! && wait` to it": lambda world: world.files.update(
                {"run.sh": f"{BASH}python train.py &\nwait $! && wait\n"}
            )
        },
    ),
    # The launcher and the scheduler.
    "an unknown launcher": lambda _: (World(launcher="x"), {"choose one of these": {"launcher": "direct"}}),
    "a misspelt launcher": lambda _: (World(launcher="mpi"), {"did you mean mpirun?": {"launcher": "direct"}}),
    "an unknown scheduler": lambda _: (World(scheduler="x"), {"choose one of these": {"scheduler": "ssh"}}),
    "a scheduler as the launcher": lambda _: (
        of_job(slurm(), launcher="slurm", scheduler=None),
        {"write job_scheduler: slurm and job_launcher: torchrun": AS_WRITTEN},
    ),
    "a launcher that Kubernetes does not have": lambda _: (
        images(pods(launcher="rank_table", image=ARCHIVE, namespace=None).having(groups={"compute": ["n1", "n2"]})),
        {"choose one of these": {"launcher": "torchrun"}},
    ),
}
