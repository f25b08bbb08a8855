"""Jobs in an image through Slurm, by rootless Podman: minutes, so it runs by name.

pytest tests/slurm_image_by_name.py in the scenario's folder, after `make molecule SCENARIO=slurm` and then
`SCENARIO=container_runtime`.
"""

import re

import pytest
from lab_images import containers, lab_image, of_user, podman, put, with_mark
from lab_jobs import PROJECT, WORKER, wait_until
from test_slurm import saves_before_it_is_stopped

SHARED = "/srv/shared"
OWN = "/srv/job-image.tar"
DIGITS = PROJECT / "jobs/digits.yml"
VENV = "opt/trainyard/venvs/pytorch"
PLAIN, TORCH = (
    {"job_scheduler": "slurm", "job_image": f"oci-archive:{SHARED}/{name}.tar"} for name in ("plain", "torch")
)


@pytest.fixture(scope="module", autouse=True)
def images(nodes, tmp_path_factory):
    """Put two images on the nodes' shared folder: the lab's own, and the same with the nodes' PyTorch."""
    folder, first = tmp_path_factory.mktemp("images"), next(iter(nodes.values()))
    image, layer = lab_image(folder / "image"), folder / "layer.tar"
    put(with_mark(image, "plain", folder / "plain.tar"), first, f"{SHARED}/plain.tar")
    # Another image on each node.
    for name, node in nodes.items():
        put(with_mark(image, name, folder / "own.tar"), node, OWN)
    with layer.open("wb") as content:
        podman("exec", first.container, "tar", "-C", "/", "-c", VENV, stdout=content)
    put(with_mark(image, "torch", folder / "torch.tar", layer), first, f"{SHARED}/torch.tar")
    yield
    first.host.check_output(f"rm {SHARED}/plain.tar {SHARED}/torch.tar")
    for node in nodes.values():
        node.host.check_output(f"rm {OWN}")
        of_user(node, "podman rmi --all --force")


@pytest.fixture
def nothing_left(nodes, left):
    """Return a check that no process and no container of a job is left on any node."""

    def check(run):
        wait_until(lambda: left(run.job_id) == {}, "no process of the job is left")
        wait_until(lambda: containers(nodes) == {}, "no container is left")

    return check


@pytest.fixture(scope="module")
def trained_on_the_nodes(play):
    """The parameters of the same training in the nodes' own environment."""
    return play.launch(DIGITS, job_nodes=2, job_scheduler="slurm").trained(4).checksums(4)


@pytest.mark.parametrize("launcher", ["torchrun", "direct"])
def test_a_training_in_the_image_ends_with_the_parameters_of_the_nodes(
    play, launcher, trained_on_the_nodes, nothing_left
):
    shell = ["sh", "-c", 'echo "mark $MARK"; exec python train.py "$@"', "sh"]
    options = ["--dataset=digits", "--data=/var/lib/trainyard/data/digits", "--model=mlp", "--epochs=100"]
    run = play.launch(DIGITS, **TORCH, job_nodes=2, job_launcher=launcher, job_command=[*shell, *options])
    assert run.trained(4).checksums(4) == trained_on_the_nodes
    assert ["mark torch" in run.log(rank) for rank in range(4)] == 4 * [True]
    nothing_left(run)


def test_what_keeps_an_image_from_running_is_named_and_no_rank_starts(play, nothing_left):
    none = {**PLAIN, "job_image": f"oci-archive:{SHARED}/none.tar"}
    for wrong, name in (
        (none, f"{none['job_image']} on {{}} (job_image: "),
        ({**PLAIN, "job_packages": ["torch"]}, "torch in the image on {} (job_packages)"),
        ({**PLAIN, "job_command": ["no-such-program"]}, "no-such-program in the image on {} (job_command)"),
    ):
        run = play.launch(WORKER, **wrong, job_nodes=2)
        run.expect(2, *(f"trainyard: no {name.format(node)}" for node in ("n1", "n2")))
        assert run.summary["state"] == "failed"
        assert not list((run.folder / "logs").glob("rank_*"))
        nothing_left(run)


def test_nodes_with_different_images_are_named(play, nothing_left):
    run = play.launch(WORKER, **{**PLAIN, "job_image": f"oci-archive:{OWN}"}, job_nodes=2)
    run.expect(2, "versions differ between the nodes (job_packages, job_image)")
    assert len(re.findall(r"job_image [0-9a-f]{64} on n[12]$", run.output, re.MULTILINE)) == 2
    nothing_left(run)


def test_a_container_that_was_killed_with_all_around_it_is_removed_by_the_next_job(play, nodes, nothing_left):
    run = play.launch(WORKER, **PLAIN, job_nodes=2).trains()
    # As Slurm does at the end of a job that confines its processes: what would remove the container is killed, too.
    nodes["n2"].host.check_output(f"pkill -KILL -u train -f '{run.job_id}.*rank|conmon|^python3 worker.py'")
    run.expect(2)
    assert set(containers(nodes)) == {"n2"}
    again = play.launch(WORKER, **PLAIN, job_nodes=2, job_command=["sh", "-c", "true"]).expect(0)
    nothing_left(again)


@pytest.mark.parametrize("launcher", ["torchrun", "direct"])
def test_a_killed_rank_ends_the_job_and_is_named(play, nodes, launcher, nothing_left):
    run = play.launch(WORKER, **TORCH, job_nodes=2, job_launcher=launcher, job_venv=f"/{VENV}").trains()
    assert set(containers(nodes)) == {"n1", "n2"}
    nodes["n2"].kill_rank(run.job_id, 1)
    run.expect(2, "rank 1 on n2 failed first: killed by SIGKILL")
    nothing_left(run)


@pytest.mark.parametrize("launcher", ["torchrun", "direct"])
def test_a_rank_saves_before_its_job_is_stopped(play, launcher, nothing_left):
    run = saves_before_it_is_stopped(play, launcher, **TORCH)
    nothing_left(run)


def test_a_job_that_is_stopped_at_once_leaves_no_container(play, nodes, nothing_left):
    run = play.launch(WORKER, **PLAIN, job_nodes=2, job_stop_grace=0).trains()
    assert set(containers(nodes)) == {"n1", "n2"}
    play("playbooks/stop.yml", job_id=run.job_id).expect(0, f"Job {run.job_id} was stopped")
    run.expect(2, "was stopped")
    nothing_left(run)
