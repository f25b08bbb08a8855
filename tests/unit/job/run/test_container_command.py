"""The command by which each container program runs a process of a job, held against the programs' documentation."""

import shlex

import pytest
from ansible.module_utils.trainyard.job.run import container_command

RECORD = {
    "program": "/usr/bin/x",
    "image": "IMAGE",
    "mounts": [["/data", "/data", "ro"], ["/jobs/a", "/jobs/a", "rw"]],
    "devices": ["/dev/infiniband"],
    "user": "2000:2000",
    "gpus": False,
}
ENV = {
    "RANK": "0",
    "TOKEN": "secret",
    "PATH": "/opt/venv/bin:/bin",
    "HOME": "/home/train",
    "XDG_RUNTIME_DIR": "/run/user/0",
}
SHARED = (
    "--network=host --uts=host --ipc=host --pid=host --security-opt=label=disable --security-opt=seccomp=unconfined"
)
ENGINE = (
    "--rm --name trainyard-a-rank0 --label trainyard.job=a "
    "--entrypoint '' --workdir /jobs/a/source --device /dev/infiniband "
    "--volume /data:/data:ro --volume /jobs/a:/jobs/a:rw "
    "--env HOME=/home/train --env PATH=/opt/venv/bin:/bin --env RANK --env TOKEN"
)


def command(runtime, **changes):
    record = {**RECORD, "runtime": runtime, **changes}
    return container_command.command(record, "a", "rank0", ["python", "a b.py"], ENV, "/jobs/a/source")


@pytest.mark.parametrize(
    ("runtime", "expected"),
    [
        (
            "podman",
            "/usr/bin/x run --pull never --replace "
            f"{SHARED} --userns=keep-id --cgroups=no-conmon --log-driver=passthrough --ulimit=host --user 2000:2000 "
            f"{ENGINE} IMAGE python 'a b.py'",
        ),
        (
            "docker",
            "/usr/bin/x run --pull never "
            f"{SHARED} --user 2000:2000 --ulimit memlock=-1 --ulimit nofile=1048576 {ENGINE} IMAGE python 'a b.py'",
        ),
        (
            "apptainer",
            "/usr/bin/x --quiet exec --cleanenv --no-eval --no-home --pwd /jobs/a/source "
            "--bind /data:/data:ro --bind /jobs/a:/jobs/a:rw IMAGE python 'a b.py'",
        ),
    ],
)
def test_the_command_of_each_program(runtime, expected):
    assert command(runtime) == shlex.split(expected)


@pytest.mark.parametrize("runtime", container_command.RUNTIMES)
def test_no_value_of_a_variable_is_an_argument(runtime):
    assert not any("secret" in word for word in command(runtime))


def test_apptainer_takes_the_variables_of_the_job_by_a_prefix():
    """Its own rules would drop LD_LIBRARY_PATH and let the image's variables win; it refuses another HOME."""
    env = {**ENV, "LD_LIBRARY_PATH": "/opt/lib"}
    prefixed = {
        "APPTAINERENV_RANK": "0",
        "APPTAINERENV_TOKEN": "secret",
        "APPTAINERENV_PATH": "/opt/venv/bin:/bin",
        "APPTAINERENV_LD_LIBRARY_PATH": "/opt/lib",
    }
    assert container_command.environment({**RECORD, "runtime": "apptainer"}, env) == {**env, **prefixed}
    for runtime in ("podman", "docker"):
        assert container_command.environment({**RECORD, "runtime": runtime}, env) == env


def test_gpus_by_each_program():
    assert "--nv" in command("apptainer", gpus=True)
    assert shlex.join(command("docker", gpus=True)).count("--gpus all") == 1
    # CDI: the devices of the record.
    assert "nvidia.com/gpu=all" in command("podman", gpus=True, devices=["nvidia.com/gpu=all"])


def test_containers_are_found_by_their_label_and_removed_by_name():
    record = {**RECORD, "runtime": "podman"}
    assert shlex.join(container_command.listing(record, "a")) == (
        "/usr/bin/x ps --all --filter label=trainyard.job=a --format '{{.Names}}'"
    )
    assert (
        shlex.join(container_command.removal(record, ["one", "two"]))
        == "/usr/bin/x rm --force --ignore --time 0 one two"
    )
    assert (
        shlex.join(container_command.removal({**record, "runtime": "docker"}, ["one"])) == "/usr/bin/x rm --force one"
    )
