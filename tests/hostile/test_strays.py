"""Processes that a job leaves beyond its own are counted or reported, and never missed."""

import os
import shlex
import signal
import subprocess
import sys
import time

import pytest
from ansible.module_utils.trainyard.base.shapes import misfit
from ansible.module_utils.trainyard.job.run import stray_texts
from ansible.module_utils.trainyard.job.run.wire import answers
from ansible.module_utils.trainyard_node.job.run import job_life
from ansible.module_utils.trainyard_node.job.run.evidence import strays
from ansible.module_utils.trainyard_node.job.run.ranks import process_table, units
from job_cluster import wait_for
from job_samples import make_job, make_plan, member
from test_job_folders import IS_ROOT, ask, job_id, start  # noqa: F401 (a fixture)

HOUR_S = 3600.0


def by_sshd(place, *argv, **options):
    """A process of the training user that descends from no process of the job, and knows nothing of it."""
    identity = {"user": place.owner.uid, "group": place.owner.gid, "extra_groups": []} if IS_ROOT else {}
    return subprocess.Popen(argv, env={}, cwd="/", start_new_session=True, **identity, **options)


@pytest.fixture
def stray(place):
    process = by_sshd(place, "/bin/sleep", "1234")
    yield process
    process.kill()
    process.wait()


def runs(place, name):
    """Start a job; return its processes, a monitor and a rank."""
    assert start(place, name)["known"]
    wait_for(lambda: len(process_table.of_job(name)) == 2, "the rank")
    return process_table.of_job(name)


def collect(place, name, **more):
    given = {"stop": True, "log_limit": 1 << 20, "user": place.user, "age_s": HOUR_S, **more}
    return ask("collect", job_id=name, job_dir=place.jobs / name, **given)


def test_what_a_rank_had_started_by_another_is_named_and_lives(place, job_id, stray):  # noqa: F811
    assert start(place, job_id)["known"]
    found = collect(place, job_id)
    assert (found["changed"], found["left"]) == (True, 0)
    # Without root, the training user works here itself, and nothing could be told from what it does.
    named = [each for each in found["not_ended"]["processes"] if each == f"{stray.pid} /bin/sleep 1234"]
    assert len(named) == int(IS_ROOT)
    assert stray.poll() is None
    assert "not_ended" not in collect(place, job_id, stop=False)
    assert "not_ended" not in collect(place, job_id, check=True)


def test_what_began_before_the_job_and_what_is_a_jobs_are_not_named(place, job_id, stray):  # noqa: F811
    wait_for(lambda: process_table.command_line(stray.pid) == "/bin/sleep 1234", "its start")
    uid = place.owner.uid
    assert stray.pid in strays.began(uid, HOUR_S)
    started = process_table.start_time(stray.pid) / os.sysconf("SC_CLK_TCK")
    since = time.clock_gettime(time.CLOCK_BOOTTIME) - started
    assert stray.pid not in strays.began(uid, since - 1)
    # A busy machine takes its time until here.
    assert stray.pid in strays.began(uid, since + 60)
    assert not {os.getpid(), os.getppid()} & set(strays.began(uid, HOUR_S))


def test_systemd_is_asked_only_where_a_process_may_be_its_own(place, monkeypatch, stray):
    wait_for(lambda: process_table.command_line(stray.pid) == "/bin/sleep 1234", "its start")
    asked = []
    monkeypatch.setattr(strays, "_manager", lambda uid: asked.append(uid) or 0)
    assert strays.began(place.owner.uid, -HOUR_S) == [] and asked == []
    assert stray.pid in strays.began(place.owner.uid, HOUR_S) and asked != []
    # It is systemd itself.
    monkeypatch.setattr(strays, "_manager", lambda _: stray.pid)
    assert stray.pid not in strays.began(place.owner.uid, HOUR_S)


def test_a_process_that_ends_meanwhile_is_not_named(place, monkeypatch):
    there, ended = process_table.of_user, []

    def of_user(*given):
        short = by_sshd(place, "/bin/true")
        short.wait()
        ended.append(short.pid)
        return {**there(*given), short.pid: (1, time.clock_gettime(time.CLOCK_BOOTTIME) * os.sysconf("SC_CLK_TCK"))}

    monkeypatch.setattr(process_table, "of_user", of_user)
    assert not {*strays.began(place.owner.uid, HOUR_S)} & {*ended} and ended


def test_the_process_by_which_podman_keeps_a_users_namespace_is_not_named(place):
    """The first container after a boot starts it, and no end of a job ends it."""

    def named(*words):
        # It waits for its input, and takes this option, too.
        shell = by_sshd(place, *words, executable="/bin/bash", stdin=subprocess.PIPE)
        wait_for(lambda: process_table.arguments(shell.pid) == [*words], "its start")
        found = strays.began(place.owner.uid, HOUR_S)
        shell.communicate()
        return shell.pid in found

    assert named("bash", "-P") and not named("catatonit", "-P")


def named(user):
    found = job_life.not_ended(user, HOUR_S)["processes"]
    return {int(each.split()[0]) for each in found}


def test_processes_of_another_job_that_runs_are_its_own_affair(place, job_id):  # noqa: F811
    theirs = runs(place, job_id)
    assert not named(place.user) & set(theirs)


# A daemon of mpirun on another node: ssh starts a shell there, which alone gives its children the id of the job.
DAEMON = "export {mark}=elsewhere-7; /bin/sh -c '/bin/sleep 1234 & echo $!; exec env -i /bin/sleep 1235'; true"


@pytest.mark.parametrize("mark", ["TRAINYARD_JOB_ID", "SLURM_JOB_ID"])
def test_a_process_of_any_job_is_no_stray(place, mark):
    """The reports of jobs that share a node advised to kill each other's ranks, and daemons of mpirun.

    The folder of such a job may lie elsewhere, or its monitor not have come up yet.
    """
    with by_sshd(place, "/bin/sh", "-c", DAEMON.format(mark=mark), stdout=subprocess.PIPE) as shell:
        child = int(shell.stdout.readline())
        (daemon,) = process_table.children()[shell.pid]
        wait_for(lambda: process_table.command_line(daemon) == "/bin/sleep 1235", "the daemon")
        family = {shell.pid, daemon, child}
        assert mark not in process_table.environment(shell.pid) | process_table.environment(daemon)
        found = named(place.user)
        for pid in family:
            os.kill(pid, signal.SIGKILL)
    assert found & family == set()


@pytest.mark.parametrize(
    ("name", "program"), [("OMPI_MCA_orte_launch_agent", "orted"), ("PRTE_MCA_prte_launch_agent", "prted")]
)
def test_the_daemons_of_a_scripts_own_mpirun_are_no_strays(place, name, program):
    """ssh starts them on other nodes, by the words in these variables in place of orted and prted."""
    (process,) = make_plan(make_job(launcher="direct", ranks_per_node=1), [member(0)]).processes["n1"]
    *mark, daemon = process.env[name].split()
    assert daemon == program
    with by_sshd(place, "/bin/sh", "-c", shlex.join(["exec", *mark, "/bin/sleep", "1235"])) as shell:
        wait_for(lambda: process_table.command_line(shell.pid) == "/bin/sleep 1235", "the daemon")
        found = named(place.user)
        shell.kill()
    assert shell.pid not in found


def test_a_child_that_a_job_starts_during_the_search_is_no_stray(place, monkeypatch):
    """Only what was there at a first look counted as a job's: helpers that it started meanwhile were named."""
    there, ranks = process_table.of_user, []

    def of_user(*given):
        ranks.append(subprocess.Popen(
            ["/bin/sleep", "1234"], env={"TRAINYARD_JOB_ID": "elsewhere-7"}, start_new_session=True,
            **({"user": place.owner.uid} if IS_ROOT else {}),
        ))  # fmt: skip
        return there(*given)

    monkeypatch.setattr(process_table, "of_user", of_user)
    found = named(place.user)
    for rank in ranks:
        rank.kill()
        rank.wait()
    assert ranks or not IS_ROOT
    assert not found & {rank.pid for rank in ranks}


AS_USER = """
import os, sys, time
child = os.fork()
if not child:
    if not os.geteuid():
        os.setuid(int(sys.argv[1]))
    print(os.getpid(), flush=True)
    time.sleep(1234)
os.waitpid(child, 0)
"""


def test_what_root_does_as_the_user_is_not_named(place):
    """Somebody may watch another job meanwhile: the agent on this node then reads its folder as the training user."""
    argv = [sys.executable, "-c", AS_USER, str(place.owner.uid)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as agent:
        child = int(agent.stdout.readline())
        found = strays.began(place.owner.uid, HOUR_S)
        os.kill(child, signal.SIGKILL)
    # Without root, it is the user's own.
    assert (child in found) == (not IS_ROOT)


def test_processes_of_root_are_never_named(place):
    """On a laptop a job may run as root: everything that root starts meanwhile would be named."""
    other = subprocess.Popen(["/bin/sleep", "1234"])
    found = job_life.not_ended("root", HOUR_S)
    other.kill()
    other.wait()
    assert found["count"] == 0


def test_a_job_that_renames_its_folder_is_counted_and_ended(place, job_id):  # noqa: F811
    for pid in runs(place, job_id):
        # Neither ends before it is counted.
        os.kill(pid, signal.SIGSTOP)
    place.does(lambda: (place.jobs / job_id).rename(place.jobs / "elsewhere"))
    assert collect(place, job_id, stop=False)["left"] == 2
    found = collect(place, job_id)
    assert (found["changed"], found["left"]) == (True, 0)
    assert process_table.of_job(job_id) == []


def test_the_unit_of_a_job_without_a_folder_keeps_its_node_in_use(place, tmp_path, monkeypatch):
    groups = {
        "10": "0::/trainyard.slice/trainyard-a-1.service\n",
        "11": "1:name=systemd:/machine/x/trainyard.slice/trainyard-b.service/below\n",
        # A user's own systemd has what units its user likes.
        "12": "0::/user.slice/user-7.slice/user@7.service/trainyard.slice/trainyard-c.service\n",
        "13": "0::/system.slice/ssh.service\n",
    }
    for pid, text in groups.items():
        (tmp_path / pid).mkdir()
        (tmp_path / pid / "cgroup").write_text(text)
    assert process_table.in_units(tmp_path) == {"a-1", "b"}
    monkeypatch.setattr(units, "SYSTEMD_RUNNING", tmp_path)
    monkeypatch.setattr(job_life.os, "geteuid", lambda: 0)
    monkeypatch.setattr(process_table, "in_units", lambda: {"a-1"})
    (found,) = [each for each in job_life.list_folders(place.jobs) if each["job_id"] == "a-1"]
    assert (found["running"], found["job_dir"]) == (True, str(place.jobs / "a-1"))


HOLDS = """
import mmap, sys
opened, mapped = open(sys.argv[1] + "/open"), open(sys.argv[1] + "/mapped", "r+b")
held = mmap.mmap(mapped.fileno(), 0)
mapped.close()
print(flush=True)
sys.stdin.read()
"""


def test_files_in_shared_memory_that_no_process_uses_are_named(place, monkeypatch):
    """A job that had filled it left all of it without a word."""
    shared, uid = place.folder("shm"), place.owner.uid
    for name in ("left", "open", "mapped"):
        place.writes(shared / name, "x")
    (shared / "link").symlink_to("/etc/passwd")
    if IS_ROOT:
        (shared / "roots").write_text("x")
    python = "/usr/bin/python3" if IS_ROOT else sys.executable
    with by_sshd(place, python, "-c", HOLDS, str(shared), stdin=subprocess.PIPE, stdout=subprocess.PIPE) as user:
        user.stdout.readline()
        assert set(strays.shared_files(uid, HOUR_S, str(shared))) == {"left"}
        user.communicate()
    assert set(strays.shared_files(uid, HOUR_S, str(shared))) == {"left", "mapped", "open"}
    assert strays.shared_files(uid, -HOUR_S, str(shared)) == {}
    monkeypatch.setattr(strays, "shared_files", lambda *_: dict.fromkeys(("a", "b"), 3 << 20))
    answer = job_life.not_ended(place.user, HOUR_S)
    assert not misfit(answer, answers.NOT_ENDED)
    assert answer["shared_memory"] == {"count": 2, "size_mib": 6, "names": ["a", "b"]}


def test_the_report_names_shared_memory_for_each_host():
    shared = {"count": 2, "size_mib": 512, "names": ["torch_77_1\x1b[2J"]}
    some = {"not_ended": {"count": 0, "user": "train", "processes": [], "shared_memory": shared}}
    assert stray_texts.texts({"n2": some}) == [
        "left in /dev/shm on n2: 512 MiB in 2 files of user train, which no process uses: torch_77_1\\x1b[2J; 1 more",
        "  if the job made them, remove them there: rm /dev/shm/NAME",
    ]
    assert len(stray_texts.texts({f"n{number}": some for number in range(9)})) == 8


def test_the_report_names_them_on_one_line_for_each_host():
    nothing = {"not_ended": {"count": 0, "user": "train", "processes": []}}
    some = {"not_ended": {"count": 3, "user": "train", "processes": ["7 sleep\n  STILL RUNNING", "8 x\x1b[2J"]}}
    assert stray_texts.texts({"n1": nothing, "n2": {"msg": "timed out"}}) == []
    assert stray_texts.texts({"n1": nothing, "n2": some}) == [
        "not ended by trainyard on n2: 3 processes of user train that started during the job: "
        "7 sleep STILL RUNNING; 8 x\\x1b[2J; 1 more",
        "  where a rank started them (ssh, systemd-run), end them there: kill PID",
    ]
    many = stray_texts.texts({f"n{number}": some for number in range(8)})
    assert len(many) == 8
    assert many[6] == "not ended by trainyard: such processes on 2 further hosts"
