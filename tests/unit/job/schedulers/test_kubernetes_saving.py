"""Time to save in pods: the script by which ranks start, run as a container's first process runs it."""

import contextlib
import os
import signal
import subprocess
import sys
from unittest import mock

import pytest
from ansible.module_utils.trainyard.job.schedulers.kubernetes.saving import wrapped
from ansible.module_utils.trainyard_controller import kubernetes_run
from job_cluster import wait_for
from job_samples import make_job
from test_kubernetes_manifests import templates, the

# A rank with a data loader worker: it takes a second to save if it is asked, and ends with 3.
SAVER = """
import signal, subprocess, sys, time
asked = []
signal.signal(signal.SIGUSR1, lambda *_: asked.append(1))
worker = subprocess.Popen(["sleep", "600"])
open(sys.argv[1], "w").close()
while not asked:
    time.sleep(0.05)
time.sleep(1)
print("saved", len(asked), worker.poll(), flush=True)
worker.kill()
sys.exit(3)
"""
# As torchrun's agent: it ends all ranks when one fails, and otherwise waits for those of other pods.
AGENT = """
import subprocess, sys, time
count = sys.argv.index("--")
ranks = [subprocess.Popen(sys.argv[count + 1:] + [f"up-{rank}"]) for rank in (0, 1)]
while any(rank.poll() is None for rank in ranks):
    time.sleep(0.05)
    if any(rank.poll() for rank in ranks):
        for rank in ranks:
            rank.kill()
        sys.exit(1)
time.sleep(600)
"""
SLEEPER = "import sys, time; open(sys.argv[1], 'w').close(); time.sleep(600)"


def command(role, words):
    """Return a command as the cluster runs it."""
    settings = {"scheduler": "kubernetes", "image": "a:1", "nodes": 2, "launcher": "torchrun", "stop_signal": "USR1"}
    return [word.replace("$$(", "$(") for word in wrapped(make_job(**settings), role, words)]


@contextlib.contextmanager
def running(folder, argv, ranks=1):
    with subprocess.Popen(argv, cwd=folder, stdout=subprocess.PIPE, text=True, start_new_session=True) as first:
        try:
            wait_for(lambda: len(list(folder.glob("up-*"))) == ranks, "the ranks")
            yield first
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(first.pid, signal.SIGKILL)


def test_a_rank_that_is_the_pod_saves_before_the_pod_ends(tmp_path):
    """A pod that was asked has failed, whatever its program returned: an indexed Job would count it as done."""
    script = f'{sys.executable} -c "$0" up-0 | cat; exit 0'
    for words in ([sys.executable, "-c", SAVER, "up-0"], ["sh", "-c", script, SAVER]):
        with running(tmp_path, command("pod", words)) as first:
            first.terminate()
            first.send_signal(signal.SIGTERM)
            assert first.communicate(timeout=240)[0] == "saved 1 None\n"
            assert first.returncode == 143
        (tmp_path / "up-0").unlink()


def test_a_program_without_a_handler_ends_at_once(tmp_path):
    with running(tmp_path, command("pod", [sys.executable, "-c", SLEEPER, "up-0"])) as first:
        first.terminate()
        assert first.wait(240) == 143


def test_the_agent_of_a_pod_does_not_end_its_ranks_while_they_save(tmp_path):
    """Rank 1 has no handler and ends at once; the agent itself ends after its ranks."""
    both = f'if [ "$1" = up-0 ]; then exec {sys.executable} -c "$0" up-0; fi; exec {sys.executable} -c "$2" "$1"'
    rank = command("rank", ["sh", "-c", 'exec sh -c "$1" "$2" "$4" "$3"', "rank", both, SAVER, SLEEPER])
    with running(tmp_path, command("agent", [sys.executable, "-c", AGENT, "--", *rank]), ranks=2) as first:
        first.terminate()
        assert first.communicate(timeout=240)[0] == "saved 1 None\n"
        assert first.returncode == 143


@pytest.mark.parametrize(("code", "status"), [("exit 7", 7), ("exit 0", 0), ("kill -KILL $$", -9)])
def test_a_rank_that_ends_by_itself_ends_as_without_the_script(code, status):
    done = subprocess.run(command("rank", ["sh", "-c", code]), check=False)
    assert done.returncode == status


def period(kind, **changes):
    """Return the grace period of the pods by role."""
    specs = {role: each["spec"] for role, each in templates(the(kind, **changes)).items()}
    return {role: spec.get("terminationGracePeriodSeconds") for role, spec in specs.items()}


def test_the_cluster_gives_the_time():
    assert period("Job", job_stop_grace=60) == {"": 65}
    assert period("Job", job_launcher="direct", job_stop_grace=0) == {"": 1}
    # These end their ranks by their own rules.
    assert period("MPIJob", job_launcher="mpirun") == {"Launcher": None, "Worker": None}
    assert period("Job", job_launcher="msrun") == {"": None}
    words = templates(the("Job", job_stop_signal="USR1"))[""]["spec"]["containers"][0]["command"]
    assert words[:2] == ["sh", "-c"] and "kill -10 " in words[2] and "$(" not in words[2].replace("$$(", "")
    assert words[3:5] == ["save", "agent"] and words[words.index("--no-python") + 4 :][:2] == ["save", "rank"]


def test_a_job_without_a_grace_has_its_command_alone():
    words = templates(the("Job", job_launcher="direct", job_stop_grace=0))[""]["spec"]["containers"][0]["command"]
    assert words == ["python", "train.py", "--data=$$(HOME)/x"]


def test_a_removal_waits_for_the_time_to_save():
    settings = {"name": "n", "api_version": "batch/v1", "resource": "Job", "stop_grace_s": 65}
    cluster = mock.Mock()
    assert kubernetes_run.remove(cluster, settings, "Job") == {"changed": True}
    cluster.delete.assert_called_once_with("batch/v1", "Job", "n", 65)
