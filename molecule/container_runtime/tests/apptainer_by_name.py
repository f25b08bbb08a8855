"""Jobs in a SIF file, by Apptainer from Debian unstable, on a lab of Debian 13 whose machine has /dev/fuse.

pytest tests/apptainer_by_name.py in the scenario's folder, after `make molecule SCENARIO=container_runtime` and
`SCENARIO=ssh_mesh` with RELEASE=trixie. The first run builds the image, which takes minutes.
"""

import json
import re
import subprocess

import pytest
from lab_jobs import LAB, WORKER
from test_image_jobs import environment, of_user, podman

SIF = "/srv/shared/job-image.sif"
IN_IMAGE = {"job_nodes": 2, "job_ranks_per_node": 2, "job_image": SIF}
SOURCE = "Types: deb\nURIs: {mirror}\nSuites: sid\nComponents: main\n"
SOURCE += "Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg\n"
PINS = "Package: *\nPin: release n=sid\nPin-Priority: -1\n\nPackage: apptainer\nPin: release n=sid\nPin-Priority: 500\n"
SETTINGS = {"container_runtime_storage": "/srv/containers", "container_runtime_apptainer": True}
PRINT_ALL = "import json, os; print('all', json.dumps(dict(os.environ)))"
LEFT = "grep -lE '^(starter|squashfuse_ll)$' /proc/[0-9]*/comm; grep -h squashfuse /proc/[0-9]*/mountinfo"


def write(node, path, text):
    subprocess.run(["podman", "exec", "-i", node.container, "tee", path], input=text.encode(), check=True)


@pytest.fixture(scope="module", autouse=True)
def sif(nodes, run_playbook):
    """Install Apptainer, and make a SIF file of the lab's own image."""
    for node in nodes.values():
        sources = node.host.check_output("cat /etc/apt/sources.list")
        write(
            node, "/etc/apt/sources.list.d/sid.sources", SOURCE.format(mirror=re.findall(r"https?://\S+", sources)[-1])
        )
        write(node, "/etc/apt/preferences.d/50-sid", PINS)
        # As udev does on a real host.
        node.host.check_output("chmod 666 /dev/fuse && apt-get update -q")
    run_playbook("changed.yml", **SETTINGS).expect(0)
    run_playbook("changed.yml", **SETTINGS).expect(0).changes_nothing()
    first = nodes["n1"]
    if not first.host.file(SIF).exists:
        base = podman("inspect", "--format", "{{.ImageName}}", f"{LAB}-n1")
        with subprocess.Popen(["podman", "save", "--format", "oci-archive", base], stdout=subprocess.PIPE) as saved:
            podman("exec", "-i", first.container, "sh", "-c", "cat >/srv/shared/base.tar", stdin=saved.stdout)
        of_user(first, f"apptainer build {SIF} oci-archive:/srv/shared/base.tar")
        first.host.check_output("rm /srv/shared/base.tar")


@pytest.fixture
def nothing_left(nodes, left):
    """Return a check that a job left no process, no program that serves files, and no mount."""

    def check(run):
        assert left(run.job_id) == {}
        assert {name: found for name, node in nodes.items() if (found := node.host.run(LEFT).stdout)} == {}

    return check


def test_ranks_run_in_the_image_with_the_variables_of_the_job(play, nothing_left):
    env = {"LD_LIBRARY_PATH": "/opt/lib", "QUOTED": 'a $HOME `id` "b", c'}
    run = play.launch(WORKER, **IN_IMAGE, job_env=env, job_command=["python3", "-c", PRINT_ALL]).expect(0)
    for rank in range(4):
        seen = environment(run, rank)
        assert (seen["APPTAINER_CONTAINER"], seen["RANK"], seen["QUOTED"]) == (SIF, str(rank), env["QUOTED"])
        assert seen["LD_LIBRARY_PATH"].startswith("/opt/lib") and seen["HOME"] == "/home/train"
        assert run.log(rank) == f"all {json.dumps(seen)}\n"
    nothing_left(run)


def test_a_killed_rank_is_named_and_ends_all(play, nodes, nothing_left):
    run = play.launch(WORKER, **IN_IMAGE).trains()
    nodes["n2"].kill_rank(run.job_id, 3)
    run.shows(2, "  rank 3 on n2 failed first: killed by SIGKILL")
    nothing_left(run)


def test_nothing_is_left_where_apptainer_itself_was_killed(play, nodes, nothing_left):
    run, host = play.launch(WORKER, **IN_IMAGE).trains(), nodes["n2"].host
    starter = host.check_output("grep -lx starter /proc/[0-9]*/comm | head -n 1").split("/")[2]
    host.check_output(f"kill -9 {starter}")
    run.expect(2, " on n2 failed first: killed by SIGKILL")
    nothing_left(run)


def test_a_rank_saves_with_the_files_of_its_image(play, nothing_left):
    saver = {"job_source": "molecule/launchers/saver", "job_command": ["python3", "train.py", "4", "SIGTERM"]}
    run = play.launch(WORKER, **IN_IMAGE, **saver, job_checkpoints="saved", job_stop_grace=60).trains()
    play("playbooks/stop.yml", job_id=run.job_id).expect(0, "time to save: 1 rank handled SIGTERM")
    assert re.search(r"^saved step \d+ after 1 signal$", run.wait().log(0), re.MULTILINE)
    nothing_left(run)


def test_what_the_image_lacks_is_found_before_the_start(play):
    wrong = {"job_command": ["python3.4", "worker.py"], "job_packages": ["torch"]}
    found = ("no python3.4 in the image", "no torch in the image's own Python", "nothing was started")
    play.launch(WORKER, **IN_IMAGE, **wrong).expect(2, *found)
    missing = "/srv/shared/none.sif: No such file or directory"
    play.launch(WORKER, **{**IN_IMAGE, "job_image": "/srv/shared/none.sif"}).expect(2, missing, "on n1, n2")
