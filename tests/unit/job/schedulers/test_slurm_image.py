"""A job of Slurm in an image: bash runs parts of its script, and simulated container programs start programs here."""

import os
import shutil
import signal
import subprocess

import pytest
from job_cluster import wait_for
from test_slurm import ARCHIVED, prepared, script

REGISTRY = f"docker://registry.example/torch@sha256:{'ab' * 32}"
PODMAN = """#!/bin/bash
folder=$(dirname "$(dirname "$0")")
echo "$@" >>"$folder/calls"
case "$1" in
image) [ -e "$folder/there" ] ;;
pull) [ ! -e "$folder/broken" ] || { echo "no space left" >&2; exit 125; }; touch "$folder/there"
    cat "$folder/image-$SLURMD_NODENAME" 2>/dev/null || echo sha256:one ;;
ps) cat "$folder/listed" 2>/dev/null ;;
inspect) cat "$folder/pid" ;;
run)
    [ ! -e "$folder/cannot" ] || { echo "Error: no subuid ranges" >&2; exit 125; }
    # As Podman: what runs in the image is no child of the program, which passes signals on.
    while [ "$1" != sh ]; do shift; done
    echo "inside $PATH" >>"$folder/calls"
    setsid "$@" & echo $! >"$folder/pid"
    trap 'kill -TERM $(<"$folder/pid")' TERM
    wait $!; status=$?; while kill -0 $(<"$folder/pid") 2>/dev/null; do wait $!; status=$?; done; exit $status ;;
esac
"""
# As Apptainer: beside the rank, a program serves the files of the image.
APPTAINER = """#!/bin/bash
folder=$(dirname "$(dirname "$0")")
echo "$@" >>"$folder/calls"
env | grep ^APPTAINERENV_ >"$folder/env"
while [ "$1" != sh ]; do shift; done
# Bash runs traps in the order of the signals' numbers, so TERM wins if both have come.
serve='trap "exit 3" TERM; trap "exit 4" URG; : >"$0"; while :; do sleep 0.1; done'
"$folder/inside/squashfuse_ll" -c "$serve" "$folder/serves" &
server=$!
until [ -e "$folder/serves" ]; do sleep 0.02; done
"$@" & wait $!; status=$?
kill -URG $server; wait $server; [ $? = 4 ] || echo asked >>"$folder/calls"
exit $status
"""
SIF = "/images/torch.sif"


@pytest.fixture
def bin_folder(tmp_path):
    """A folder of programs with a simulated Podman, first in PATH."""
    folder = tmp_path / "bin"
    folder.mkdir()
    # Its processes have the name of the program, as a shell's have not.
    (folder / "inside").mkdir()
    shutil.copy("/bin/bash", folder / "inside/podman")
    (folder / "inside/script").write_text(PODMAN)
    (folder / "podman").write_text(f'#!/bin/sh\nexec {folder}/inside/podman {folder}/inside/script "$@"\n')
    (folder / "podman").chmod(0o755)
    for name in ("starter", "squashfuse_ll"):
        shutil.copy("/bin/bash", folder / "inside" / name)
    (folder / "inside/apptainer").write_text(APPTAINER)
    (folder / "apptainer").write_text(f'#!/bin/sh\nexec {folder}/inside/starter {folder}/inside/apptainer "$@"\n')
    (folder / "apptainer").chmod(0o755)
    return folder


def calls(folder, first="", file="calls"):
    return [line for line in (folder / file).read_text().splitlines() if line.startswith(first)]


def checked(folder, bin_folder, path="", nodes=("n1",), **changed):
    here = {"job_venv": "", "job_command": ["bash", "x"], "job_launcher": "direct", "job_image": ARCHIVED, **changed}
    home = {"HOME": str(folder), "TRAINYARD_JOB_ID": "digits-1"}
    return prepared(script(**here), folder, nodes, PATH=path or f"{bin_folder}:/usr/bin:/bin", **home)


@pytest.mark.parametrize("image", [ARCHIVED, REGISTRY, SIF])
@pytest.mark.parametrize("starts", ["torchrun", "direct", "mindspore"])
def test_bash_accepts_every_script(image, starts):
    text = script(job_image=image, job_launcher=starts, job_packages=["torch"], job_mounts=["/data:/d:ro"])
    for part in (
        text.partition("\n#SOURCE\n")[0],
        text.split("<<'TRAINYARD_CHECK'\n")[1].split("\nTRAINYARD_CHECK\n")[0],
    ):
        assert subprocess.run(["bash", "-n"], input=part, text=True, capture_output=True, check=False).stderr == ""


def test_each_node_brings_the_image_and_is_checked_in_it(tmp_path, bin_folder):
    done = checked(tmp_path, bin_folder, job_packages=["no-such-package"])
    assert done.returncode == 66 and "trainyard: no no-such-package in the image on n1 (job_packages)" in done.stdout
    assert calls(bin_folder, "pull") == [f"pull --quiet {ARCHIVED}"]
    assert checked(tmp_path, bin_folder).returncode == 0
    (run,) = calls(bin_folder, "run ")[-1:]
    assert "--cgroups=no-conmon" in run and "--name trainyard-digits-1-check" in run and " sha256:one sh -c " in run
    # The image may name another user.
    assert f" --user {os.getuid()}:{os.getgid()} " in run
    done = checked(tmp_path, bin_folder, job_command=["no-such-program"])
    assert done.stdout == "trainyard: no no-such-program in the image on n1 (job_command)\n"


def test_an_agent_needs_python3_and_bash_in_the_image(tmp_path, bin_folder):
    assert checked(tmp_path, bin_folder, job_launcher="torchrun").returncode == 0
    start = script(job_image=ARCHIVED, job_launcher="torchrun").split("# Start the ranks.")[1]
    assert "python3 -m torch.distributed.run" in start
    for name in ("bash", "id", "cat", "mkdir", "dirname", "setsid", "tail", "sh"):
        (bin_folder / name).symlink_to(shutil.which(name))
    done = checked(tmp_path, bin_folder, path=str(bin_folder), job_launcher="torchrun")
    assert done.stdout == "trainyard: no python3 in the image on n1 (job_launcher)\n"


def test_a_node_with_another_image_is_named(tmp_path, bin_folder):
    (bin_folder / "image-n2").write_text("sha256:two\n")
    done = checked(tmp_path, bin_folder, nodes=("n1", "n2"))
    assert done.returncode == 65
    assert "trainyard: versions differ between the nodes (job_packages, job_image):" in done.stdout
    assert {"    job_image sha256:one on n1", "    job_image sha256:two on n2"} <= set(done.stdout.splitlines())
    (bin_folder / "image-n2").write_text("sha256:one\n")
    assert checked(tmp_path, bin_folder, nodes=("n1", "n2")).returncode == 0


def test_a_node_where_the_image_does_not_start_is_named(tmp_path, bin_folder):
    (bin_folder / "cannot").touch()
    done = checked(tmp_path, bin_folder)
    assert done.returncode == 66 and "no subuid ranges" in done.stderr
    assert done.stdout == f"trainyard: the check in {ARCHIVED} ended with status 125 on n1 (job_image)\n"


def test_containers_that_slurm_killed_are_removed_by_the_next_job(tmp_path, bin_folder):
    assert checked(tmp_path, bin_folder).returncode == 0
    assert calls(bin_folder, "ps") == ["ps --quiet --filter label=trainyard.job"]
    (bin_folder / "listed").write_text("aa\nbb\n")
    # The simulated Podman names the same process for all containers.
    (bin_folder / "pid").write_text(f"{os.getpid()}\n")
    assert checked(tmp_path, bin_folder).returncode == 0
    assert calls(bin_folder, "rm") == []
    (bin_folder / "pid").write_text(f"{2**30}\n")
    assert checked(tmp_path, bin_folder).returncode == 0
    assert calls(bin_folder, "rm") == [f"rm --force --ignore --time 0 {name}" for name in ("aa", "bb")]


def test_an_image_of_a_registry_is_pulled_only_where_it_is_missing(tmp_path, bin_folder):
    for _ in range(2):
        assert checked(tmp_path, bin_folder, job_image=REGISTRY).returncode == 0
    assert calls(bin_folder, "pull") == [f"pull --quiet {REGISTRY}"]
    assert checked(tmp_path, bin_folder, job_image=REGISTRY, job_image_pull="always").returncode == 0
    assert len(calls(bin_folder, "pull")) == 2


def test_a_node_that_cannot_bring_the_image_says_why(tmp_path, bin_folder):
    (bin_folder / "broken").touch()
    done = checked(tmp_path, bin_folder)
    assert done.returncode == 66
    assert done.stdout == f"trainyard: no {ARCHIVED} on n1 (job_image: no space left)\n"
    (bin_folder / "podman").unlink()
    for name in ("bash", "id", "cat"):
        (bin_folder / name).symlink_to(shutil.which(name))
    done = checked(tmp_path, bin_folder, path=str(bin_folder))
    assert done.stdout == "trainyard: no podman on n1 (job_container)\n"


def test_the_login_of_the_user_does_not_change_the_image(tmp_path, bin_folder):
    logged_in = {"LD_LIBRARY_PATH": "/node/lib", "PYTHONPATH": "/node", "TMPDIR": "/scratch/7", "RANK": "0"}
    set_here = {"job_env": {"PYTHONPATH": "/data/packages"}}
    assert task(tmp_path, bin_folder, "rank", "true", **logged_in, changed=set_here).wait(90) == 0
    (run,) = calls(bin_folder, "run ")
    assert "--env PYTHONPATH " in run and "--env RANK " in run
    assert "LD_LIBRARY_PATH" not in run and "TMPDIR" not in run


def task(folder, bin_folder, command, *argv, image=ARCHIVED, changed=None, **env):
    """Start task.sh with a role on n1."""
    text = script(job_image=image, job_venv="/no/venv", **(changed or {})).split("<<'TRAINYARD_TASK'\n")[1]
    (folder / "task.sh").write_text(text.split("\nTRAINYARD_TASK\n")[0])
    for name in ("source", "logs", "exits", "ranks"):
        (folder / name).mkdir(exist_ok=True)
    (folder / "image-n1").write_text("sha256:one\n")
    given = {
        "TRAINYARD_JOB_DIR": str(folder), "TRAINYARD_JOB_ID": "digits-1", "TRAINYARD_ATTEMPT": "0", "SLURM_PROCID": "0",
        "MASTER_ADDR": "127.0.0.1", "SLURMD_NODENAME": "n1", "SLURM_NODEID": "0", "HOME": str(folder),
        "PATH": f"{bin_folder}:/usr/sbin:/usr/bin:/sbin:/bin", **env,
    }  # fmt: skip
    return subprocess.Popen(["bash", str(folder / "task.sh"), command, *argv], env=given)


def test_a_task_runs_in_the_image_and_leaves_no_container(tmp_path, bin_folder):
    show = ["bash", "-c", "echo $RANK $TRAINYARD_IN_IMAGE; exit 7"]
    assert task(tmp_path, bin_folder, "rank", *show).wait(90) == 7
    assert (tmp_path / "logs/rank_0.log").read_text() == "0 1\n"
    (run,) = calls(bin_folder, "run ")
    assert "--name trainyard-digits-1-rank_0 " in run and "--env RANK" in run and "--env PATH" not in run
    assert "--label trainyard.job=digits-1 " in run
    assert calls(bin_folder, "rm") == ["rm --force --ignore --time 0 trainyard-digits-1-rank_0"]
    assert (tmp_path / "exits/rank_0.exit").read_text().split()[3] == "7"


def test_a_rank_of_an_agent_in_the_image_starts_no_other_container(tmp_path, bin_folder):
    inside = {"TRAINYARD_IN_IMAGE": "1", "TRAINYARD_ADDRESS": "127.0.0.1", "RANK": "3"}
    assert task(tmp_path, bin_folder, "rank", "sh", "-c", "echo $RANK", **inside).wait(90) == 0
    assert (tmp_path / "logs/rank_3.log").read_text() == "3\n" and not (bin_folder / "calls").exists()


def test_apptainer_takes_the_variables_of_the_job_by_a_prefix(tmp_path, bin_folder):
    """They win over those of the image, and LD_LIBRARY_PATH does not get lost."""
    variables = {"LD_LIBRARY_PATH": "/opt/lib", "XDG_RUNTIME_DIR": "/run/user/1"}
    chosen = {"job_env": {"LD_LIBRARY_PATH": "/opt/lib"}}
    assert task(tmp_path, bin_folder, "rank", "true", image=SIF, changed=chosen, **variables).wait(90) == 0
    assert calls(bin_folder)[0].startswith("--quiet exec --cleanenv --no-eval --no-home ")
    given = dict(line.removeprefix("APPTAINERENV_").split("=", 1) for line in calls(bin_folder, file="env"))
    assert (given["LD_LIBRARY_PATH"], given["RANK"], given["TRAINYARD_IN_IMAGE"]) == ("/opt/lib", "0", "1")
    assert not {"HOME", "PATH", "XDG_RUNTIME_DIR"} & given.keys()


@pytest.mark.parametrize("image", [ARCHIVED, SIF])
def test_the_program_in_the_image_gets_time_to_save(tmp_path, bin_folder, image):
    saver = tmp_path / "saver.py"
    saver.write_text(
        "import os, signal, sys, time\n"
        # A handler that prints could run while the line before is still being written.
        "signal.signal(signal.SIGTERM, lambda *_: (os.write(1, b'saved\\n'), sys.exit(0)))\n"
        "print('up', flush=True)\n"
        "while True: time.sleep(0.1)\n"
    )
    rank = task(tmp_path, bin_folder, "rank", "python3", str(saver), image=image)
    log = tmp_path / "logs/rank_0.log"
    wait_for(lambda: log.exists() and "up\n" in log.read_text(), "the program")
    assert task(tmp_path, bin_folder, "ask", image=image).wait(90) == 0 and rank.wait(90) == 0
    assert log.read_text() == "up\nsaved\n"
    assert "asked" not in calls(bin_folder)
    assert image == SIF or "trainyard-digits-1-rank_0" in calls(bin_folder, "inspect")[0]
    assert {path.name for path in (tmp_path / "ranks").iterdir()} >= {"n1:over", "n1:rank_0.asked", "n1:rank_0.saves"}


def test_a_container_that_slurm_has_ended_already_is_no_error(tmp_path, bin_folder, capfd):
    rank, noted = task(tmp_path, bin_folder, "rank", "sleep", "60"), bin_folder / "pid"
    wait_for(
        lambda: (tmp_path / "ranks/n1:rank_0.pid").exists() and noted.exists() and noted.read_text(), "the program"
    )
    pid = int(noted.read_text())
    noted.unlink()
    assert task(tmp_path, bin_folder, "ask").wait(90) == 0
    assert capfd.readouterr().err == ""
    os.kill(pid, signal.SIGKILL)
    assert rank.wait(90) == 0 and (tmp_path / "exits/rank_0.exit").read_text().split()[3] != "0"
