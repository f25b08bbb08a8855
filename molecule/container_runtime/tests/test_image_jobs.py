"""Jobs in an image, by rootless Podman on every node: the same plan, supervision, stop and explanation as without one.

The image is the lab's own with a variable in it, as no registry of images is in reach.
"""

import json
import re

import pytest
from lab_images import containers, lab_image, of_user, put, with_mark
from lab_jobs import WORKER, wait_until

ARCHIVE = "/srv/shared/job-image.tar"
IN_IMAGE = {"job_image": f"oci-archive:{ARCHIVE}", "job_nodes": 2}
# Variables that a container program adds.
ADDED = {"container", "HOSTNAME", "TERM", "MARK"}
PRINT_ALL = "import json, os; print('all', json.dumps({**os.environ, 'uid': str(os.getuid())}))"


@pytest.fixture(scope="session")
def archives(tmp_path_factory):
    """The lab's image twice, by the mark that tells one from the other."""
    folder = tmp_path_factory.mktemp("images")
    image = lab_image(folder / "image")
    return {mark: with_mark(image, mark, folder / f"{mark}.tar") for mark in ("one", "two")}


@pytest.fixture(scope="session", autouse=True)
def image(archives, nodes):
    put(archives["one"], nodes["n1"], ARCHIVE)
    yield
    for node in nodes.values():
        node.host.run(f"rm -f {ARCHIVE} /srv/job-image.tar")
        of_user(node, "podman rmi --all --force")


@pytest.fixture(scope="module")
def printed(play):
    """What rank 0 has in its environment, in the image, where every node first brings it, and without one."""
    command = ["python3", "-c", PRINT_ALL]
    runs = [play.launch(WORKER, **more, job_command=command) for more in (IN_IMAGE, {"job_nodes": 2})]
    return [run.expect(0) for run in runs]


def environment(run, rank):
    return json.loads(re.search(r"^all (.*)$", run.log(rank), re.MULTILINE)[1])


def test_the_image_is_brought_and_ranks_run_in_it(printed, nodes, left):
    inside, outside = printed
    assert [environment(inside, rank)["MARK"] for rank in (0, 1)] == ["one", "one"]
    assert "MARK" not in environment(outside, 0)
    assert containers(nodes) == {} and left(inside.job_id) == {}


def test_ranks_see_the_same_variables_as_without_an_image(printed):
    inside, outside = (environment(run, 0) for run in printed)
    jobs = [run.job_id for run in printed]
    ports = [each.pop("MASTER_PORT") for each in (inside, outside)]
    assert all(port.isdecimal() for port in ports)
    same = {name: value.replace(jobs[0], jobs[1]) for name, value in inside.items() if name not in ADDED}
    assert same == {name: value for name, value in outside.items() if name not in ADDED}


def test_a_killed_rank_starts_all_again_in_the_image_and_then_ends_all(play, nodes, left):
    run = play.launch(WORKER, **IN_IMAGE, job_max_restarts=1).trains()
    assert set(containers(nodes)) == {"n1", "n2"}
    nodes["n2"].kill_rank(run.job_id, 1)
    run.wait_for(r"rank 1 on n2: killed by SIGKILL, so the whole job starts again")
    log = f"{run.job_dir}/hosts/*/logs/rank_1.log"
    wait_until(lambda: "step 2/" in nodes["n2"].host.check_output(f"sed '1,/--- started again/d' {log}"), "a step")
    again = re.findall(r"pid (\d+)", nodes["n2"].host.check_output(f"cat {log}"))
    nodes["n2"].table.kill(int(again[-1]))
    run.shows(2, "  rank 1 on n2 failed first: killed by SIGKILL")
    assert left(run.job_id) == {} and containers(nodes) == {}


@pytest.mark.long
def test_nothing_is_left_where_a_monitor_was_killed(play, nodes, left):
    run, node = play.launch(WORKER, **IN_IMAGE).trains(), nodes["n2"]
    node.table.kill(node.table.read_json(f"{run.job_dir}/hosts/*/monitor.json")["pid"])
    run.expect(2, "the monitor of n2 ended first, and rank 1 with it")
    assert left(run.job_id) == {} and containers(nodes) == {}


def test_a_job_that_is_stopped_leaves_no_container(play, nodes, left):
    run = play.launch(WORKER, **IN_IMAGE).trains()
    play("playbooks/stop.yml", job_id=run.job_id).expect(0)
    assert run.summary["state"] == "stopped"
    assert left(run.job_id) == {} and containers(nodes) == {}


def test_a_node_with_another_image_is_named(play, archives, nodes):
    for node, mark in (("n1", "one"), ("n2", "two")):
        put(archives[mark], nodes[node], "/srv/job-image.tar")
    run = play.launch(WORKER, job_nodes=2, job_image="oci-archive:/srv/job-image.tar")
    run.expect(2, "n2 has it as sha256:", "expected sha256:")


def test_all_that_keeps_an_image_from_running_comes_at_once(play):
    wrong = {"job_mounts": ["/nowhere:/data:ro"], "job_command": ["python3.4", "worker.py"]}
    play.launch(WORKER, **IN_IMAGE, **wrong).expect(
        2, "no /nowhere", "no python3.4 in the image", "nothing was started"
    )
    play.launch(WORKER, job_nodes=2, job_image="oci-archive:/srv/shared/none.tar").expect(
        2, "/srv/shared/none.tar: No such file or directory", "on n1, n2"
    )
    play.launch(WORKER, job_image="docker://registry.example/torch:2.13").expect(2, "a digest at its end (@sha256:...)")
