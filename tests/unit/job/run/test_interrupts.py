"""Ctrl-C at each moment of a launch: one of four answers, and it is true on the node."""

import itertools
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import warm_ansible
from ansible.module_utils.trainyard.base.adhoc import from_here, inventory_options
from ansible.module_utils.trainyard.base.findings import UnusableError
from ansible.module_utils.trainyard.job.run.interrupted import NOT_STARTED, Phase, commands, react
from ansible.module_utils.trainyard_controller.job import run_choice as known_runs
from ansible.module_utils.trainyard_node.job.run.ranks import process_table
from job_cluster import PATIENCE_S, wait_for
from plays import patched

PROJECT = Path(__file__).resolve().parents[4]
HOW = commands("digits-1", "-i inventories/lab")


def test_a_first_signal_waits_for_facts_unless_nothing_was_started():
    first = {phase: react(phase, False, "digits-1", HOW) for phase in Phase}
    assert {phase for phase, reaction in first.items() if reaction.leaves} == {Phase.PREPARING}
    assert first[Phase.PREPARING].text == NOT_STARTED
    assert first[Phase.REPORTED].text == ""
    for phase in set(Phase) - {Phase.PREPARING, Phase.REPORTED}:
        assert first[phase].text.endswith("Ctrl-C again leaves at once.")


def test_a_second_signal_leaves_at_once():
    again = {phase: react(phase, True, "digits-1", HOW) for phase in Phase}
    assert {phase for phase, reaction in again.items() if not reaction.leaves} == {Phase.REPORTED}
    for phase in (Phase.STARTING, Phase.WATCHING, Phase.ENDED, Phase.ENDING):
        assert again[phase].text.endswith(HOW)
    for phase, said in [(Phase.STARTING, "is starting"), (Phase.WATCHING, "goes on"), (Phase.ENDED, "has ended")]:
        assert f"Job digits-1 {said}" in again[phase].text
    # No answer claims what another one does.
    assert [phase for phase in Phase if "goes on" in again[phase].text] == [Phase.WATCHING]
    stop = commands("a-1", inventory_options(["inv/my lab", "b"])).splitlines()[-1]
    assert stop.split(maxsplit=1)[1] == "ansible-playbook playbooks/stop.yml -i 'inv/my lab' -i b -e job_id=a-1"


# A Python that a node has for the agent: a visit fails while `down` is there, and waits here while `hold` is there and
# `when` is so. The answer of one visit is lost where `lost` is there and `loses` is so.
HELD = """#!/bin/sh
[ ! -e {down} ] || exit 1
if [ -e {lost} ] && {loses}; then
    rm {lost}
    {python} "$@" >/dev/null
    exit 1
fi
if [ -e {hold} ] && {when}; then
    touch {held}
    while [ -e {hold} ]; do sleep 0.05; done
fi
exec {python} "$@"
"""
INVENTORY = """
compute:
  hosts: {{here: }}
  vars:
    ansible_connection: local
    ansible_python_interpreter: {python}
    trainyard_become: false
    trainyard_user: "{{{{ lookup('ansible.builtin.pipe', 'id -un') }}}}"
"""
# Beyond one for each test: a job's name and second are its id.
_number = itertools.count()


def play(playbook, inventory, screen, variables, *options, patch=""):
    """Start a playbook in a session of its own, whose output goes to the file `screen`; `patch` as for `patched`."""
    env = {key: value for key, value in os.environ.items() if not key.startswith("ANSIBLE_")}
    env.update(warm_ansible.SETTINGS, PYTHONUNBUFFERED="1")
    program = str(Path(sys.executable).with_name("ansible-playbook"))
    argv = [program, playbook, "-i", str(inventory), "-e", json.dumps(variables), *options]
    screen.write_text("")
    if not patch:
        return warm_ansible.Process(argv, PROJECT, env, screen, screen)
    argv = patched(argv, patch)
    files = {"stdin": subprocess.DEVNULL, "stderr": subprocess.STDOUT}
    with screen.open("w") as output:
        return subprocess.Popen(argv, cwd=PROJECT, env=env, stdout=output, **files, start_new_session=True)


class Launch:
    """A launch whose job runs until `go` is there, and whose visits are held `when` a shell's condition is true."""

    def __init__(self, folder, when, patch="", loses="", **variables):
        self.folder, self.runs, self.state = folder, folder / "runs", folder / "state"
        self.go, self.hold, self.held = folder / "go", folder / "hold", folder / "held"
        self.down, lost, python = folder / "down", folder / "lost", folder / "python"
        places = {"down": self.down, "lost": lost, "hold": self.hold, "held": self.held, "python": sys.executable}
        python.write_text(HELD.format(loses=loses or "false", when=when, **places))
        python.chmod(0o755)
        self.hold.touch()
        lost.touch()
        (folder / "inventory.yml").write_text(INVENTORY.format(python=python))
        program = f"import pathlib, time\nprint('step 1/2 loss 0.5', flush=True)\ngo = pathlib.Path({str(self.go)!r})\n"
        program += "while not go.exists(): time.sleep(0.05)"
        job = {
            "job_name": f"ctrlc{os.getpid()}x{next(_number)}",
            **{"job_launcher": "direct", "job_ranks_per_node": 1, "job_devices": "none", "job_venv": ""},
            **{"job_packages": [], "job_min_disk_mib": 1, "job_command": [sys.executable, "-c", program]},
            **{"trainyard_runs": str(self.runs), "trainyard_state": str(self.state)},
            **variables,
        }
        self.screen = folder / "screen"
        self.process = play("launch.yml", folder / "inventory.yml", self.screen, job, patch=patch)

    @property
    def said(self):
        return self.screen.read_text()

    @property
    def job_id(self):
        [plan] = self.runs.glob("*/plan.json")
        return plan.parent.name

    def press_ctrl_c(self):
        # A terminal sends it to all processes of the command.
        os.killpg(self.process.pid, signal.SIGINT)

    def end(self):
        return self.process.wait(PATIENCE_S)

    def clear(self):
        self.go.touch()
        self.hold.unlink(missing_ok=True)
        self.process.kill()
        self.process.wait()
        for plan in self.runs.glob("*/plan.json"):
            wait_for(lambda name=plan.parent.name: process_table.of_job(name) == [], "the job to end")


@pytest.fixture
def launch(tmp_path):
    made = []

    def make(when, patch="", **variables):
        made.append(Launch(tmp_path, when, patch, **variables))
        return made[0]

    yield make
    made[0].clear()


def test_nothing_was_started_while_the_nodes_are_checked(launch):
    run = launch("true")
    wait_for(run.held.exists, "the first visit")
    run.press_ctrl_c()
    assert run.end() == 130
    # On a busy machine lines of progress come before.
    assert run.said.strip().endswith(NOT_STARTED)
    assert not run.state.exists()
    with pytest.raises(UnusableError, match="No run at all"):
        known_runs.find(run.runs)


def test_a_job_that_was_starting_goes_on_everywhere(launch, tmp_path):
    run = launch(f"ls {tmp_path}/runs/*/plan.json >/dev/null 2>&1")
    wait_for(run.held.exists, "the visit that starts the job")
    run.press_ctrl_c()
    wait_for(lambda: f"waiting until the nodes of {run.job_id} have answered" in run.said, "a word")
    run.hold.unlink()
    assert run.end() == 130
    assert f"Job {run.job_id} has started on all its nodes, and goes on." in run.said
    inventory = f"{from_here(str(tmp_path), str(PROJECT))}/inventory.yml"
    assert f"playbooks/stop.yml -i {inventory} -e job_id={run.job_id}" in run.said
    assert process_table.of_job(run.job_id)
    assert known_runs.find(run.runs)["job_id"] == run.job_id


def test_a_job_has_its_result_though_the_answer_to_its_start_is_lost_and_its_end_is_interrupted(launch, tmp_path):
    runs = f"{tmp_path}/runs/*"
    starts = f"ls {runs}/plan.json >/dev/null 2>&1 && ! ls {runs}/not-started >/dev/null 2>&1"
    run = launch(f"grep -q succeeded {tmp_path}/state/jobs/*/hosts/*/cluster.json 2>/dev/null", loses=starts)
    wait_for(lambda: "ranks running" in run.said, "a line of progress")
    assert not (tmp_path / "lost").exists()
    run.go.touch()
    wait_for(run.held.exists, "the visit that collects")
    run.press_ctrl_c()
    wait_for(lambda: "Ctrl-C again leaves at once." in run.said, "a word")
    run.hold.unlink()
    assert run.end() == 0
    assert f"Job {run.job_id} succeeded in " in run.said and "goes on" not in run.said
    assert json.loads((run.runs / run.job_id / "summary.json").read_text())["state"] == "succeeded"


IMPATIENT = """
from ansible.module_utils.trainyard_controller.job import watching
watching.TELL_S, watching.GIVE_UP_S = 0.5, 1.0
"""
AT_ITS_END = "watching.may_live_until = lambda plan: 0.0"


def test_a_job_of_which_no_node_answers_any_more_is_left_alone(launch):
    run = launch("false", IMPATIENT + AT_ITS_END)
    wait_for(lambda: "ranks running" in run.said, "a line of progress")
    run.down.touch()
    assert run.end() == 2, run.said
    assert f"No longer watching. Job {run.job_id} goes on, as far as is known: here: " in run.said
    for name in ("watch", "status", "logs", "stop"):
        assert f"ansible-playbook playbooks/{name}.yml -i " in run.said
    assert process_table.of_job(run.job_id) and not (run.runs / run.job_id / "summary.json").exists()


# As a file system that becomes read-only: nothing below `runs` can be made, written or removed.
READ_ONLY = """
import errno, os, sys
from ansible.module_utils.trainyard_controller.job import watching
watching.PAGE_S = 0.2
def refuse(event, given):
    write = os.O_WRONLY | os.O_RDWR | os.O_CREAT
    changes = event in ("os.mkdir", "os.remove", "os.rename") or (event == "open" and given[2] & write)
    if changes and os.path.exists({flag!r}) and str(given[0]).startswith({runs!r}):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), given[0])
sys.addaudithook(refuse)
"""


def test_a_read_only_folder_of_runs_does_not_end_a_watch_or_its_job(launch, tmp_path):
    flag = tmp_path / "read-only"
    run = launch("false", READ_ONLY.format(flag=str(flag), runs=f"{tmp_path}/runs/"), live=True)
    wait_for(lambda: "ranks running" in run.said, "a line of progress")
    flag.touch()
    shown = run.said.count("ranks running")
    wait_for(lambda: run.said.count("ranks running") > shown or run.process.poll() is not None, "another line")
    assert run.process.poll() is None and process_table.of_job(run.job_id), run.said
    run.go.touch()
    assert run.end() == 2, run.said
    text = " ".join(run.said.split())
    assert f"cannot write {run.runs}/{run.job_id}/" in text and ": Read-only file system" in text
    assert "the job itself is not touched by this" in text and "Errno" not in text
    for name in ("watch", "status", "logs", "stop"):
        assert f"ansible-playbook playbooks/{name}.yml -i " in text
    cluster = json.loads((run.state / "jobs" / run.job_id / "hosts/here/cluster.json").read_text())
    assert cluster["end"]["state"] == "succeeded"
