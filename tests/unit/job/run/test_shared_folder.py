"""Two nodes whose parts of a job's folder lie on one disk: the source is there once, and each writes below its name."""

import concurrent.futures
import hashlib
import io
import os
import tarfile
from pathlib import Path

import pytest
from ansible.module_utils.trainyard.job.record import folder_layout
from ansible.module_utils.trainyard_node.job.plan import tickets
from ansible.module_utils.trainyard_node.job.record.node_plan import MACHINE, source_of
from ansible.module_utils.trainyard_node.job.record.output_reading import read_outputs
from ansible.module_utils.trainyard_node.job.run import folder_removal, job_folder
from ansible.module_utils.trainyard_node.job.run.evidence import checkpoint_poll
from ansible.module_utils.trainyard_node.job.run.ranks import folders
from ansible.module_utils.trainyard_node.machine import as_user
from job_cluster import Cluster, wait_for

PLAN = {"job_id": "digits-1", "processes": [], "files": []}


def archive(content=b"print('train')\n"):
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as files:
        entry = tarfile.TarInfo("train.py")
        entry.size = len(content)
        files.addfile(entry, io.BytesIO(content))
    return packed.getvalue()


PACKED = archive()


@pytest.fixture
def parts(tmp_path):
    """The parts of two nodes, which have made and filled them."""
    found = [tmp_path / "jobs/digits-1/hosts" / host for host in ("n1", "n2")]
    for part in found:
        assert job_folder.make(part, as_user.owner_of(tmp_path))
        job_folder.fill(part, PLAN, PACKED, b"", {})
    return found


def test_paths_have_the_name_of_the_node_and_lead_back():
    part = folder_layout.node_dir("/state/jobs/a-1")
    question = {"job_dir": part, "files": [{"path": f"{part}/hosts"}], "wait_s": 0}
    assert folder_layout.on_host(question, 'n"1') == {
        "job_dir": '/state/jobs/a-1/hosts/n"1', "files": [{"path": '/state/jobs/a-1/hosts/n"1/hosts'}], "wait_s": 0
    }  # fmt: skip
    # A job of an older version has no parts; and a state may be called so.
    for path in (part, "/state/jobs/a-1"):
        assert folder_layout.common_dir(path) == "/state/jobs/a-1"
    assert folders.id_of("/hosts/jobs/a-1/hosts/n1") == "a-1"


def test_the_source_is_there_once_and_a_second_node_leaves_what_ranks_changed(parts):
    one, two = parts
    common = one.parents[1]
    assert source_of(one) == source_of(two) == str(common / "source")
    assert sorted(path.name for path in common.iterdir()) == ["hosts", "source", "source.sha256"]
    assert str((common / "source.sha256").readlink()) == hashlib.sha256(PACKED).hexdigest()
    assert {path.name for path in one.iterdir()} >= {"logs", "exits", "node_plan.json"}
    assert common.stat().st_mode & 0o777 == one.stat().st_mode & 0o777 == 0o700
    (common / "source" / "train.py").write_text("changed")
    three = one.with_name("n3")
    assert job_folder.make(three, as_user.owner_of(common)) and not job_folder.make(three, as_user.owner_of(common))
    job_folder.fill(three, PLAN, PACKED, b"", {})
    assert (common / "source" / "train.py").read_text() == "changed"
    # What they save by relative names is there once.
    assert read_outputs(one, ["*.py"], 100)["files"] == read_outputs(three, ["*.py"], 100)["files"]


def test_another_source_is_that_of_another_launch(parts):
    three = parts[0].with_name("n3")
    job_folder.make(three, as_user.owner_of(parts[0]))
    with pytest.raises(as_user.JobError, match="the source of another launch"):
        job_folder.fill(three, PLAN, archive(b"other"), b"", {})


def test_of_nodes_that_unpack_at_once_the_first_one_places_the_source(tmp_path, monkeypatch):
    one, two = (tmp_path / "jobs/digits-1/hosts" / host for host in ("n1", "n2"))
    for part in (one, two):
        job_folder.make(part, as_user.owner_of(tmp_path))
    unpack = job_folder._unpack

    def meanwhile(content, place):
        monkeypatch.setattr(job_folder, "_unpack", unpack)
        job_folder.fill(two, PLAN, PACKED, b"", {})
        unpack(content, place)

    monkeypatch.setattr(job_folder, "_unpack", meanwhile)
    job_folder.fill(one, PLAN, PACKED, b"", {})
    assert not (one / "source").exists() and [path.name for path in Path(source_of(one)).iterdir()] == ["train.py"]


def test_a_node_removes_its_part_and_the_last_one_all(parts):
    one, two = parts
    (one.parents[1] / "saved").mkdir()
    assert folder_removal.remove(one)
    assert (two.parents[1] / "saved").is_dir() and not one.exists() and (two / "node_plan.json").exists()
    # Again nothing happens, and the other part stays.
    assert folder_removal.remove(one) and two.exists()
    assert folder_removal.remove(two)
    assert [*two.parents[2].iterdir()] == [] and not folder_removal.remove(two)


def test_nodes_that_remove_their_parts_at_once_leave_nothing(tmp_path):
    for number in range(20):
        found = [tmp_path / f"jobs/digits-{number}/hosts" / host for host in ("n1", "n2", "n3")]
        for part in found:
            job_folder.make(part, as_user.owner_of(tmp_path))
            job_folder.fill(part, PLAN, PACKED, b"", {})
        with concurrent.futures.ThreadPoolExecutor(3) as at_once:
            list(at_once.map(folder_removal.remove, found))
    assert [*(tmp_path / "jobs").iterdir()] == []


def test_a_machine_lists_its_own_parts_and_reads_its_own_tickets(parts, monkeypatch):
    one, two = parts
    jobs = one.parents[2]
    assert folders.of_jobs(jobs) == [one, two]
    (two / MACHINE).write_text("another")
    assert folders.of_jobs(jobs) == [one]
    # The source counts for the last part alone.
    (two.parents[1] / "saved").write_bytes(bytes(500_000))
    assert folders.record(one)["size"] < 500_000
    folder_removal.remove(two)
    assert folders.record(one)["size"] > 500_000
    tickets.renew(jobs, "digits-2", [0], True)
    assert list(tickets.read(jobs)) == ["digits-2"]
    monkeypatch.setattr(os, "uname", lambda: os.uname_result(("Linux", "another", "", "", "")))
    assert tickets.read(jobs) == {}


def test_relative_checkpoints_are_the_same_for_all_nodes(parts, monkeypatch):
    seen = []
    monkeypatch.setattr(checkpoint_poll, "poll", lambda pattern, *_: seen.append(pattern) or [])
    for number, part in enumerate(parts):
        checkpoint_poll.Watch(part, "saved/step_*.pt")
        wait_for(lambda number=number: len(seen) > number, "a poll")
    assert {*seen} == {str(parts[0].parents[1] / "saved/step_*.pt")}


def test_ranks_of_two_nodes_work_in_one_folder_and_each_monitor_has_its_own(tmp_path):
    with Cluster(tmp_path / "jobs/digits-1/hosts", ["train"], ["train"]) as cluster:
        cluster.start()
        # One file for both.
        cluster.head.go()
        assert cluster.over()["state"] == "succeeded"
        cluster.all_ended()
        for node in cluster.nodes:
            assert [*node.exits().values()] == [(0, None)]
            assert "step 5/5" in (node.dir / "logs" / f"rank_{node.spec['node_rank']}.log").read_text()
    assert sorted(path.name for path in (tmp_path / "jobs/digits-1").iterdir()) == ["hosts", "source"]


def test_a_rank_that_fails_on_a_shared_disk_is_started_again(tmp_path):
    with Cluster(tmp_path / "jobs/digits-1/hosts", ["exit3"], ["wait"], max_restarts=1) as cluster:
        cluster.start()
        cluster.head.go()
        end = cluster.over()
        assert (end["state"], end["failure"]["exit_code"], end["failure"]["host"]) == ("failed", 3, "n1")
        assert len(cluster.state()["restarts"]["history"]) == 1
        cluster.all_ended()
