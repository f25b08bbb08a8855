"""Root prepares, reads and removes folders of jobs that belong to the training user, who may do anything with them."""

import base64
import io
import json
import os
import signal
import subprocess
import sys
import tarfile
import uuid
from pathlib import Path

import pytest
from ansible.module_utils.trainyard_node import agent
from ansible.module_utils.trainyard_node.job.plan import obstacles
from ansible.module_utils.trainyard_node.job.run import job_folder
from ansible.module_utils.trainyard_node.job.run.ranks import folders, process_table, units
from ansible.module_utils.trainyard_node.machine import as_user, mounts, private
from job_cluster import free_port, wait_for

IS_ROOT = os.geteuid() == 0


def ask(question, **arguments):
    """Return the answer of a node's agent; a question that hangs ends."""
    return agent.answer(question, json.loads(json.dumps(arguments, default=str)), 20)


def archive():
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w:gz") as packed:
        packed.addfile(tarfile.TarInfo("empty"))
    return base64.b64encode(content.getvalue()).decode()


def start(place, job_id, **changes):
    """Have root start a job of the training user."""
    job_dir = place.jobs / job_id / "hosts" / "n1"
    part = {
        "job_id": job_id, "job_dir": str(job_dir), "host": "n1", "node_rank": 0, "hosts": ["n1"], "head_host": "n1",
        "head_address": "127.0.0.1", "monitor_port": free_port(), "silent_after_s": 15, "timeout_s": 600,
        "world_size": 1, "progress_pattern": "", "rank_log": "rank_{rank}.log", "files": [], "devices": [],
        "processes": [{"name": "rank0", "ranks": [0], "argv": ["sleep", "600"],
                       "env": {"TRAINYARD_JOB_ID": job_id, "PATH": os.defpath}, "log": f"{job_dir}/logs/rank_0.log"}],
        **changes,
    }  # fmt: skip
    given = {"source_archive": archive(), "secret_env": {"KEY": "s3cret"}, "secret_files": {}, "token": "t"}
    return ask("start", node_plan=part, user=place.user, files=[], **given)


def runs(job_id):
    """Whether the rank runs its program: before, it reads files of its folder."""
    return "sleep" in map(process_table.name, process_table.of_job(job_id))


@pytest.fixture
def job_id():
    name = f"test-{uuid.uuid4().hex[:12]}"
    yield name
    process_table.end(name, grace_s=0.0)


@pytest.fixture
def while_preparing(monkeypatch):
    """Have something happen in the middle of the preparation of a job's folder."""

    def do(action):
        unpack = tarfile.TarFile.extractall

        def then(self, *arguments, **named):
            unpack(self, *arguments, **named)
            action()

        monkeypatch.setattr(tarfile.TarFile, "extractall", then)

    return do


def owners(folder):
    return {str(path): path.lstat().st_uid for path in [folder, *folder.rglob("*")]}


# ---- written


def test_a_link_that_waits_for_job_json_leads_nowhere(place, job_id, while_preparing):
    while_preparing(lambda: (place.jobs / job_id / "hosts/n1/node_plan.json").symlink_to(place.secret))
    before = owners(place.roots)
    answer = start(place, job_id)
    assert answer["failed"] and "node_plan.json" in answer["msg"]
    assert (place.secret.read_text(), owners(place.roots)) == ("hunter2", before)
    assert not (place.jobs / job_id).exists()


def test_a_folder_that_was_swapped_meanwhile_gives_away_nothing(place, job_id, while_preparing):
    def swap():
        (place.jobs / job_id).rename(place.jobs / "aside")
        (place.jobs / job_id).symlink_to(place.roots)

    while_preparing(swap)
    before = owners(place.roots)
    start(place, job_id)
    after = owners(place.roots)
    assert {path: after.get(path) for path in before} == before
    assert place.secret.read_text() == "hunter2"
    assert not IS_ROOT or after == before


def test_a_link_in_place_of_the_folder_of_jobs_makes_nothing_elsewhere(place, job_id):
    place.does(os.rmdir, place.jobs)
    place.state.rmdir()
    place.state.symlink_to(place.roots)
    os.chown(place.state, place.owner.uid, place.owner.gid, follow_symlinks=False)
    answer = start(place, job_id)
    if IS_ROOT:
        assert answer["failed"] and "run site.yml" in answer["msg"]
        assert [path.name for path in place.roots.iterdir()] == ["secret"]
    else:
        # With the user's rights alone there is nothing to be had.
        assert answer["known"]


def test_what_a_job_has_is_for_its_user_alone(place, job_id):
    answer = start(place, job_id)
    folder = place.jobs / job_id
    assert answer["monitor_alive"], answer
    assert folder.stat().st_mode & 0o777 == 0o700
    assert {path.lstat().st_uid for path in [folder, *folder.rglob("*")]} == {place.owner.uid}
    assert ask("remove", job_id=job_id, job_dir=folder / "hosts/n1")["changed"] is True
    assert not folder.exists()


def test_root_makes_the_folder_of_all_jobs_so_that_nobody_takes_it_away(place, job_id):
    place.does(os.rmdir, place.jobs)
    os.chown(place.state, os.geteuid(), os.getegid())
    assert start(place, job_id)["monitor_alive"]
    found = place.jobs.stat()
    assert not IS_ROOT or (found.st_uid, found.st_mode & 0o7777) == (0, job_folder.JOBS_MODE)


# ---- read


def test_a_log_that_is_a_link_is_not_brought(place, job_id):
    folder = place.folder(job_id)
    place.writes(folder / "logs" / "rank_0.log", "step 1")
    place.does(os.symlink, place.secret, folder / "logs" / "rank_1.log")
    place.does(os.symlink, place.secret, folder / "metrics.jsonl")
    place.does(os.mkfifo, folder / "logs" / "rank_2.log")
    for question in ("collect", "planned"):
        arguments = {"job_id": job_id, "stop": False} if question == "collect" else {}
        logs = ask(question, job_dir=folder, log_limit=1000, **arguments)["logs"]
        assert logs == {"rank_0.log": base64.b64encode(b"step 1").decode()}


def test_a_folder_of_logs_that_is_a_link_to_one_of_root_is_not_read(place, job_id):
    hidden = place.roots / "hidden"
    hidden.mkdir(mode=0o700)
    (hidden / "other.log").write_text("hunter2")
    folder = place.folder(job_id)
    place.does(os.rmdir, folder / "logs")
    place.does(os.symlink, hidden, folder / "logs")
    logs = ask("collect", job_id=job_id, job_dir=folder, stop=False, log_limit=1000)["logs"]
    assert logs == ({} if IS_ROOT else {"other.log": base64.b64encode(b"hunter2").decode()})


def test_a_job_that_writes_very_much_is_cut(place, job_id, monkeypatch):
    monkeypatch.setattr(job_folder, "MAX_LOG_BYTES", 25)
    folder = place.folder(job_id)
    for rank in range(4):
        place.writes(folder / "logs" / f"rank_{rank}.log", "0123456789")
    logs = ask("collect", job_id=job_id, job_dir=folder, stop=False, log_limit=10)["logs"]
    whole = [base64.b64decode(content) for content in logs.values()]
    assert whole[:2] == [b"0123456789"] * 2
    assert whole[2].endswith(b"on the node]\n56789") and whole[3].endswith(b"on the node]\n")


@pytest.mark.parametrize(
    "name", ["node_plan.json", "monitor.json", "cluster.json", "attempts.json", "exits/rank0.json"]
)
def test_nobody_waits_for_a_pipe(place, job_id, name):
    folder = place.folder(job_id)
    place.writes(folder / "node_plan.json", json.dumps({"job_id": job_id, "processes": [], "devices": [0]}))
    (folder / name).unlink(missing_ok=True)
    place.does(os.mkfifo, folder / name)
    assert ask("state", job_id=job_id, job_dir=folder)["known"] is (name != "node_plan.json")
    listed = ask("folders", state_dir=place.state, of_schedulers=[])["folders"]
    assert [each["job_id"] for each in listed] == ([] if name == "node_plan.json" else [job_id])
    assert obstacles.device_findings({"devices": [0], "job_id": "other", "job_dir": str(place.jobs / "other")}) == []


@pytest.mark.parametrize("content", ["[]", "7", '{"pid": "x"}', '{"pid": {}}', "[" * 5000, "{"])
def test_rubbish_in_one_folder_does_not_hide_the_others(place, content):
    for name in ("bad", "good"):
        place.folder(name)
        place.writes(place.jobs / name / "node_plan.json", "{}")
    place.writes(place.jobs / "bad" / "monitor.json", content)
    listed = ask("folders", state_dir=place.state, of_schedulers=[])["folders"]
    assert "good" in [each["job_id"] for each in listed]


def test_a_job_is_called_what_its_folder_is_called(place):
    for name in ("mine", "-x", "*", "Other", "a_b"):
        place.folder(name)
        place.writes(place.jobs / name / "node_plan.json", json.dumps({"job_id": "*"}))
    listed = ask("folders", state_dir=place.state, of_schedulers=[place.jobs / "*"])["folders"]
    assert [each["job_id"] for each in listed] == ["mine"]


# ---- ended


@pytest.mark.parametrize("question", ["remove", "collect"])
def test_what_is_no_id_ends_nothing(place, question, monkeypatch):
    asked = []
    monkeypatch.setattr(subprocess, "Popen", lambda *words, **_: asked.append(words))
    more = {"stop": True, "log_limit": 1} if question == "collect" else {}
    answer = ask(question, job_id="*", job_dir=place.folder("mine"), **more)
    assert answer["msg"] == "job_id '*': expected small letters, digits and hyphens"
    assert asked == [] and (place.jobs / "mine").is_dir()


@pytest.mark.parametrize("content", ['{"x": 1}', "[]", "7", '{"pid": {}, "start_time": []}', '{"processes": [3]}'])
def test_a_job_that_spoils_its_folder_is_seen_and_ended(place, job_id, content):
    """Units, cgroups and processes tell what runs; nothing in the folder of a job keeps a stop from ending it."""
    assert start(place, job_id)["monitor_alive"]
    folder = place.jobs / job_id / "hosts" / "n1"
    wait_for(lambda: runs(job_id), "the rank to start")

    def spoil():
        for name in ("monitor.json", "node_plan.json", "attempts.json"):
            (folder / name).unlink(missing_ok=True)
            (folder / name).write_text(content)
            # Its monitor writes these files again where it can.
            (folder / name).chmod(0o400)
        folder.chmod(0o500)

    place.does(spoil)
    assert ask("in_use", state_dir=place.state, services=[])["uses"][0] == f"job {job_id}"
    (listed,) = ask("folders", state_dir=place.state, of_schedulers=[])["folders"]
    assert (listed["job_id"], listed["running"]) == (job_id, True)
    assert ask("state", job_id=job_id, job_dir=folder)["left"] > 0
    ended = ask("collect", job_id=job_id, job_dir=folder, stop=True, log_limit=10)
    assert not ended.get("failed"), ended
    assert process_table.of_job(job_id) == []
    assert ask("in_use", state_dir=place.state, services=[])["uses"] == []


def test_a_job_whose_folder_its_user_locks_is_seen_and_removed(place, job_id):
    assert start(place, job_id)["monitor_alive"]
    folder = place.jobs / job_id / "hosts" / "n1"
    wait_for(lambda: runs(job_id), "the rank to start")
    place.does(folder.chmod, 0)
    assert ask("in_use", state_dir=place.state, services=[])["uses"][0] == f"job {job_id}"
    assert ask("remove", job_id=job_id, job_dir=folder)["changed"] is True
    assert process_table.of_job(job_id) == [] and not folder.exists()


def test_stop_ends_no_process_because_a_file_says_so(place, job_id):
    victim = subprocess.Popen(["sleep", "600"])
    # Whom else could we end without being root?
    pid = victim.pid if IS_ROOT else 1
    folder = place.folder(job_id)
    place.writes(folder / "node_plan.json", json.dumps({"job_id": job_id, "processes": []}))
    named = {"pid": pid, "start_time": process_table.start_time(pid)}
    place.writes(folder / "monitor.json", json.dumps(named))
    answer = ask("collect", job_id=job_id, job_dir=folder, stop=True, log_limit=1)
    try:
        assert answer["known"] is True
        assert victim.poll() is None
    finally:
        victim.kill()
        victim.wait()


def test_the_id_of_a_job_in_a_stranger_s_environment_makes_nobody_part_of_it(place, job_id):
    folder = place.folder(job_id)
    place.writes(folder / "node_plan.json", json.dumps({"job_id": job_id, "processes": []}))
    with subprocess.Popen(["sleep", "600"], env={"TRAINYARD_JOB_ID": job_id}) as stranger:
        found = ask("state", job_id=job_id, job_dir=folder)["left"]
        stranger.kill()
    assert found == (0 if IS_ROOT else 1)


def test_stopping_a_job_leaves_the_units_of_one_whose_id_goes_on(tmp_path, monkeypatch):
    monkeypatch.setattr(units, "LASTING", tmp_path)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    (tmp_path / "systemctl").write_text("#!/bin/sh\n")
    (tmp_path / "systemctl").chmod(0o755)
    runtime = Path("/jobs/x")
    for name in ("digits-1", "digits-1-2"):
        units.start(name, "train", sys.executable, runtime, units.Limits(60, 30, True))
    units.stop("digits-1", lambda: True)
    left = sorted(path.name for path in tmp_path.rglob("trainyard-*"))
    assert left == ["trainyard-digits-1-2.service"] * 2


# ---- removed


def test_a_link_in_place_of_a_folder_is_removed_and_not_what_it_leads_to(place, job_id):
    place.does(os.symlink, place.roots, place.jobs / job_id)
    assert ask("remove", job_id=job_id, job_dir=place.jobs / job_id)["changed"] is True
    assert place.secret.read_text() == "hunter2"
    assert not (place.jobs / job_id).is_symlink()


def test_root_removes_no_folder_that_others_could_have_put_there(place):
    """`jobs` becomes a link to a folder of root's, in which the id is the name of another one."""
    precious = place.roots / "precious"
    precious.mkdir()
    (precious / "file").write_text("keep")
    place.does(os.rmdir, place.jobs)
    place.does(os.symlink, place.roots, place.jobs)
    answer = ask("remove", job_id="precious", job_dir=place.jobs / "precious")
    if IS_ROOT:
        assert answer["failed"] and "remove it by hand" in answer["msg"]
        assert (precious / "file").read_text() == "keep"
    else:
        assert answer["changed"] is True


def test_a_part_that_leads_to_the_job_of_another_user_gives_and_removes_nothing(place, job_id):
    """In the folder of a job its user may put anything in the place of a node's part; that of the other is closed."""
    other = place.jobs / "other-1" / "hosts" / "n1"
    (other / "logs").mkdir(parents=True)
    (other / "logs" / "rank_0.log").write_text("hunter2")
    for path in (other.parents[1], *other.parents[1].rglob("*")):
        os.chown(path, *((1, 1) if IS_ROOT else (-1, -1)))
    other.parents[1].chmod(0o700 if IS_ROOT else 0)
    place.does((place.jobs / job_id).mkdir)
    place.does(os.symlink, other.parent, place.jobs / job_id / "hosts")
    part = place.jobs / job_id / "hosts" / "n1"
    try:
        assert ask("collect", job_id=job_id, job_dir=part, stop=True, log_limit=100)["logs"] == {}
        assert ask("state", job_id=job_id, job_dir=part)["known"] is False
        assert ask("remove", job_id=job_id, job_dir=part)["changed"] is True
    finally:
        other.parents[1].chmod(0o700)
    assert (other / "logs" / "rank_0.log").read_text() == "hunter2" and not (place.jobs / job_id).exists()


# ---- by whom


def test_what_takes_too_long_or_says_too_much_is_ended(place, monkeypatch):
    monkeypatch.setattr(as_user, "MAX_BYTES", 1000)
    if IS_ROOT:
        with pytest.raises(as_user.JobError, match="MiB to read"):
            as_user.run(place.owner, lambda: "x" * 2000)
        with pytest.raises(as_user.JobError, match="was killed: see the kernel's log"):
            as_user.run(place.owner, lambda: os.kill(os.getpid(), signal.SIGKILL))
        with pytest.raises(as_user.JobError, match="cannot be read in time"):
            as_user.run(place.owner, lambda: os.pipe() and os.read(os.pipe()[0], 1), limit_s=0.1)
    assert as_user.run(place.owner, os.geteuid) == place.owner.uid


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda base: None, True),
        (lambda base: base.chmod(0o777), False),
        (lambda base: base.chmod(0o1777), True),
        (lambda base: os.chown(base, 65534, 65534), False),
        (lambda base: (base.rename(base.with_name("aside")), base.symlink_to(base.with_name("aside"))), True),
    ],
)
def test_whether_root_alone_decides_what_a_folder_is(place, change, expected):
    if not IS_ROOT:
        assert not private.only_root_changes(place.roots)
        return
    change(place.roots)
    assert private.only_root_changes(place.roots) is expected


# ---- on another file system


@pytest.fixture
def mounted(monkeypatch, tmp_path):
    """Have a folder be root's, on a file system of its own; FUSE notes the `user` who mounted it."""
    look, table = os.lstat, tmp_path / "mountinfo"

    def mount(folder, kind="tmpfs", options="rw"):
        state = list(look(folder))
        state[2], state[4] = os.makedev(0, 4711), 0
        table.write_text(f"91 28 0:4711 / {folder} rw,nosuid,nodev shared:7 - {kind} any rw,{options}\n")
        monkeypatch.setattr(mounts, "TABLE", table)

        def lstat(path, **named):
            return os.stat_result(state) if str(path) == str(folder) else look(path, **named)

        monkeypatch.setattr(os, "lstat", lstat)

    return mount


@pytest.mark.parametrize(("kind", "options", "uid"), [
    ("fuse", "user_id=1234,group_id=7", 1234),
    ("fuse.sshfs", "user_id=1234,group_id=7,allow_other", 1234),
    ("fuseblk", "user_id=1234,group_id=7,blksize=4096", 1234),
    # An administrator mounts GlusterFS and the like; and these words may be a name on another file system.
    ("fuse.glusterfs", "user_id=0,group_id=0,allow_other", 0),
    ("tmpfs", "user_id=1234", 0),
])  # fmt: skip
def test_a_file_system_belongs_to_who_mounted_it_whatever_it_claims(place, mounted, kind, options, uid):
    mounted(place.state, kind, options)
    assert as_user.owner_of(place.state, mounted=True).uid == uid
    assert private.only_root_changes(place.state) is (uid == 0 and IS_ROOT)


def test_root_on_another_file_system_than_the_folder_of_jobs_is_not_believed(place, job_id, mounted):
    """No launch makes a job's folder a file system of its own, but its user may mount one there."""
    mounted(place.folder(job_id))
    place.folder("good")
    assert as_user.owner_of(place.jobs / job_id) is None
    assert ask("state", job_id=job_id, job_dir=place.jobs / job_id)["known"] is False
    listed = ask("folders", state_dir=place.state, of_schedulers=[place.jobs / "good", place.jobs / job_id])["folders"]
    assert [each["job_id"] for each in listed] == ["good"]
    answer = ask("remove", job_id=job_id, job_dir=place.jobs / job_id)
    assert answer["failed"] and f"umount {place.jobs / job_id}" in answer["msg"]
    assert (place.jobs / job_id / "source").is_dir()


def test_the_folder_of_jobs_may_be_a_file_system_of_its_own(place, mounted):
    place.folder("mine")
    mounted(place.jobs)
    assert list(folders.of_jobs(place.jobs)) == [place.jobs / "mine"]


@pytest.mark.parametrize("left", [
    [], ["source"], ["source", "logs", "exits"],
    ["source", "logs", "exits", "node_plan.json", "trainyard.pyz", "hostfile"],
])  # fmt: skip
def test_what_an_agent_left_that_was_killed_before_its_job_began_can_be_removed(place, job_id, left):
    """clean.yml never saw it; an agent that is still at it is not disturbed."""
    folder = place.jobs / job_id
    place.does(os.mkdir, folder)
    for name in left:
        if name in job_folder.FOLDERS:
            place.does(os.mkdir, folder / name)
        else:
            place.writes(folder / name, '{"half')
    assert ask("folders", state_dir=place.state, of_schedulers=[])["folders"] == []
    for path in (*folder.iterdir(), folder):
        os.utime(path, (1.0, 1.0))
    [found] = ask("folders", state_dir=place.state, of_schedulers=[])["folders"]
    assert (found["job_id"], found["running"]) == (job_id, False) and found["age_s"] > folders.MADE_S
    assert ask("remove", job_dir=folder, job_id=job_id)["changed"] and not folder.exists()


def test_what_no_agent_made_is_none_of_it(place):
    for name in ("data", "source"):
        place.does(os.mkdir, place.jobs / name)
        place.writes(place.jobs / name / "mine", "")
        os.utime(place.jobs / name, (1.0, 1.0))
    assert ask("folders", state_dir=place.state, of_schedulers=[])["folders"] == []
