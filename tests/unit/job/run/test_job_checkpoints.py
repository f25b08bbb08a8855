"""Checkpoints from outside: names, forms, which is the newest complete one; real files, and a real monitor."""

from __future__ import annotations

import io
import json
import os
import signal
import struct
import zipfile

import pytest
from ansible.module_utils.trainyard.job import schedulers
from ansible.module_utils.trainyard.job.record.secrets import forms
from ansible.module_utils.trainyard.job.run import checkpoints, messages
from ansible.module_utils.trainyard.job.run.checkpoints import Book, Look
from ansible.module_utils.trainyard.job.run.progress import DEFAULT_PATTERN
from ansible.module_utils.trainyard.job.run.shapes import misfit
from ansible.module_utils.trainyard_node.job.run import checkpoint_poll as watching
from ansible.module_utils.trainyard_node.job.run.log_tail import Tail
from hypothesis import given
from hypothesis import strategies as st
from job_cluster import attempt, wait_for


@pytest.mark.parametrize(
    ("name", "step", "epoch"),
    [
        ("epoch=3-step=1000.ckpt", 1000, 3),  # Lightning
        ("global_step100", 100, None),  # DeepSpeed
        ("step-1000", 1000, None),  # torchtitan
        ("iter_0000100", 100, None),  # Megatron-LM
        ("checkpoint-500", 500, None),  # Hugging Face
        ("resnet-2_300.ckpt", 300, 2),  # MindSpore
        ("epoch-0007.pt", None, 7),
        ("epoch-0007-00300.ckpt", 300, 7),
        ("000100", 100, None),  # Orbax
        ("last.ckpt", None, None),
        ("model-v2.pt", None, None),
        ("misstep3.pt", None, None),
        ("resnet50.pth", None, None),
    ],
)
def test_a_step_is_taken_where_a_name_says_it(name, step, epoch):
    assert checkpoints.place_of(name) == {"step": step, "epoch": epoch}


@given(st.text())
def test_any_name_can_be_looked_at(name):
    place = checkpoints.place_of(name)
    assert all(value is None or 0 <= value < 1 << 62 for value in place.values())
    checkpoints.is_temporary(name), checkpoints.looks_like_one(name), sorted([name, "a1"], key=checkpoints.natural)


@pytest.mark.parametrize(
    "line",
    [
        "resumed from checkpoint_0005.pt after epoch 5",
        "no checkpoint in /data/run on n1: training starts at epoch 1",
        "=> loaded checkpoint 'model.pth.tar' (epoch 5)",
        "=> no checkpoint found at 'model.pth.tar'",
        "Resuming training from step 100",
        "Loading model from /data/run/checkpoint-500.",
        "  Continuing training from checkpoint, will skip to saved global_step",
        "Restoring states from the checkpoint path at /data/run/last.ckpt",
        "[Rank 0] Loading checkpoint from /data/run/global_step100/mp_rank_00_model_states.pt...",
        "  successfully loaded checkpoint from /data/run [ t 1/1, p 1/1 ] at iteration 1000",
        "    will not load any checkpoints and will start from random",
        "Training from scratch",
    ],
)
def test_lines_that_say_from_which_checkpoint_a_program_starts(line):
    assert checkpoints.tells_start(line)


@pytest.mark.parametrize(
    "line",
    [
        "step 5/500 loss 0.2",
        "saved checkpoint step_10.pt",
        "Loading checkpoint shards: 100%|##########| 2/2",
        "Loading pretrained weights from resnet50.pth",
        "loading dataset from /data/train.pt",
        "continue?",
        "loaded 5000 pictures",
    ],
)
def test_lines_that_say_nothing_of_it(line):
    assert not checkpoints.tells_start(line)


def test_the_last_line_before_the_first_step_tells_from_which_checkpoint_an_attempt_starts(tmp_path):
    log = tmp_path / "logs" / "rank_0.log"
    log.parent.mkdir()
    tail = Tail(tmp_path, log.name, DEFAULT_PATTERN, hidden=forms({"secret_env": {"KEY": "hunter2-and-more"}}))
    log.write_text("=> loading checkpoint 'a.pt'\n=> loaded checkpoint 'a.pt' for hunter2-and-more\nstep 3 loss 0.5\n")
    tail.read(1.0)
    assert tail.resumed.startswith("=> loaded checkpoint 'a.pt' for ") and "hunter2" not in tail.resumed
    known = tail.resumed
    with log.open("a") as more:
        more.write("loading the best checkpoint best.pt for the evaluation\n")
    tail.read(2.0)
    assert tail.resumed == known


@pytest.mark.parametrize("name", [".step_3.pt", "step_3.pt.tmp", "tmp-checkpoint-500", "a.partial", "x.tmp.123", "x~"])
def test_names_of_what_is_being_written(name):
    assert checkpoints.is_temporary(name)


@pytest.mark.parametrize("name", ["step_3.pt", "attempt_3.pt", "template.pt", "temperature.ckpt", "checkpoint-500"])
def test_names_of_what_is_not(name):
    assert not checkpoints.is_temporary(name)


def archive(size=5000):
    """A file as torch.save writes it: a zip archive."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as there:
        there.writestr("archive/data.pkl", b"x" * size)
    return content.getvalue()


def safetensors(size=100):
    header = json.dumps({"__metadata__": {}, "w": {"dtype": "U8", "shape": [size], "data_offsets": [0, size]}}).encode()
    return struct.pack("<Q", len(header)) + header + b"\1" * size


@pytest.mark.parametrize(("name", "whole"), [("a.pt", archive()), ("a.safetensors", safetensors())])
def test_a_form_that_knows_its_end_is_whole_or_cut_off_wherever_it_is_cut(tmp_path, name, whole):
    path = tmp_path / name
    path.write_bytes(whole)
    assert watching._form(path, len(whole)) == ("", True)
    for length in (9, 30, len(whole) // 2, len(whole) - 30, len(whole) - 23):
        path.write_bytes(whole[:length])
        fault, sure = watching._form(path, length)
        assert fault and sure, length


@given(st.binary(), st.binary(), st.sampled_from(["a.pt", "a.safetensors", "a.ckpt"]))
def test_any_bytes_can_be_judged(head, tail, name):
    checkpoints.file_fault(name, len(head) + len(tail), head, tail)


@given(st.binary(max_size=60))
def test_any_header_of_safetensors_can_be_judged(text):
    checkpoints.file_fault("a.safetensors", 99, struct.pack("<Q", len(text)) + text, text)


def test_folders_of_torch_distributed_checkpoint():
    assert checkpoints.folder_fault({"": ["__0_0.distcp", ".metadata"]}) == ("", True)
    assert checkpoints.folder_fault({"": ["__0_0.distcp"]})[0].startswith("no .metadata in it")
    assert checkpoints.folder_fault({"": ["__0_0.distcp", ".metadata.tmp"]})[0].startswith(".metadata.tmp")
    # As Hugging Face saves under FSDP: the states side by side, and files beside them.
    inside = {"optimizer_0": ["__0_0.distcp", ".metadata"], "": ["trainer_state.json"]}
    assert checkpoints.folder_fault(inside) == ("", False)
    assert "model_0" in checkpoints.folder_fault({**inside, "model_0": ["__0_0.distcp"]})[0]


def test_the_marker_of_deepspeed_and_megatron_names_the_newest_whole_folder(tmp_path):
    for number, tag in enumerate(("global_step100", "global_step200", "global_step300")):
        (tmp_path / tag).mkdir()
        (tmp_path / tag / "mp_rank_00_model_states.pt").write_bytes(archive())
        os.utime(tmp_path / tag / "mp_rank_00_model_states.pt", (1000 + number, 1000 + number))
    (tmp_path / "latest").write_text("global_step200")
    found = {look.name: look for look in watching.poll(str(tmp_path))}
    assert [found[f"global_step{step}00"].whole for step in (1, 2, 3)] == [False, True, False]
    assert "does not name it yet" in found["global_step300"].fault
    assert checkpoints.marked(["iter_0000100", "iter_0000200"], "100\n") == ({"iter_0000100"}, {"iter_0000200"})
    assert checkpoints.marked(["iter_0000100"], "release") == (set(), set())


OLD = Look("step_1.ckpt", 10.0, 5, 1)
NEW = Look("step_2.ckpt", 20.0, 5, 1)


def test_two_equal_looks_while_ranks_run_make_a_checkpoint_complete():
    book = Book()
    first = book.take([OLD], 0, 0.0, True)
    assert (first["newest"], first["unfinished"]["reason"]) == (None, "it was written just now")
    assert book.take([OLD], 0, 0.0, True)["newest"]["step"] == 1
    grown = book.take([OLD, NEW], 0, 0.0, True)
    assert (grown["newest"]["step"], grown["unfinished"]["step"]) == (1, 2)
    assert book.take([OLD, NEW._replace(size=6)], 0, 0.0, True)["unfinished"]["step"] == 2
    done = book.take([OLD, NEW._replace(size=6)], 0, 0.0, True)
    assert (done["newest"]["step"], done["unfinished"]) == (2, None)


def test_what_was_written_as_an_attempt_ended_stays_unknown():
    book = Book()
    for _ in range(2):
        book.take([OLD], 0, 0.0, True)
    assert book.take([OLD, NEW], 0, 0.0, False)["unfinished"]["reason"] == "it was written as the ranks ended"
    for _ in range(3):
        known = book.take([OLD, NEW], 1, 25.0, True)
        assert (known["newest"]["step"], known["unfinished"]["reason"]) == (
            1,
            "it was being written as an attempt ended",
        )
    # Its own form may prove it all the same, and the next attempt may write it anew.
    assert book.take([OLD, NEW._replace(whole=True)], 1, 25.0, True)["newest"]["step"] == 2
    again = NEW._replace(time=30.0, size=7)
    assert book.take([OLD, again], 1, 25.0, True)["newest"]["step"] == 1
    assert book.take([OLD, again], 1, 25.0, True)["newest"]["step"] == 2


LOOKS = st.lists(
    st.builds(Look, st.sampled_from("abc"), st.floats(0, 99), st.integers(0, 3), st.just(1),
              st.sampled_from(["", "cut"]), st.booleans()),
    max_size=3, unique_by=lambda look: look.name,
)  # fmt: skip


@given(st.lists(st.tuples(LOOKS, st.booleans()), max_size=6))
def test_no_faulty_checkpoint_is_ever_the_newest_complete_one(rounds):
    book = Book()
    for looks, running in rounds:
        known = book.take(looks, 0, 0.0, running)
        names = {look.name: look for look in looks}
        if known["newest"]:
            assert not names[known["newest"]["name"]].fault
        if known["unfinished"]:
            assert known["unfinished"]["time"] == max(look.time for look in looks)
        assert not misfit({**known, "problem": ""}, messages._CHECKPOINTS)


def test_what_a_folder_may_hold_besides(tmp_path):
    (tmp_path / "step_1.pt").write_bytes(archive())
    (tmp_path / "step_2.pt.tmp").write_bytes(b"half")
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "step_9.pt").symlink_to("step_1.pt")
    (tmp_path / "loop").symlink_to("loop")
    os.mkfifo(tmp_path / "step_8.pt")
    (tmp_path / "step-3").mkdir()
    (tmp_path / "step-3" / "up").symlink_to(tmp_path)
    os.mkfifo(tmp_path / "step-3" / "pipe")
    found = {look.name: look for look in watching.poll(str(tmp_path))}
    assert set(found) == {"step_1.pt", "step_2.pt.tmp", "step-3"}
    assert found["step_1.pt"].whole and found["step_2.pt.tmp"].fault
    assert {look.name for look in watching.poll(f"{tmp_path}/step_*.pt")} == {"step_1.pt"}
    with pytest.raises(OSError):
        watching.poll(f"{tmp_path}/loop/x/step_1.pt")
    with pytest.raises(FileNotFoundError):
        watching.poll(f"{tmp_path}/not-there")
    assert watching.poll(f"{tmp_path}/not-there/*.pt") == []


def test_a_pattern_may_have_signs_in_each_part_and_reads_so_many_entries(tmp_path, monkeypatch):
    for run in ("run-1", "run-2"):
        (tmp_path / run).mkdir()
        (tmp_path / run / f"{run}-step=7.ckpt").write_bytes(archive())
    assert len(watching.poll(f"{tmp_path}/run-*/*step=*.ckpt")) == 2
    monkeypatch.setattr(watching, "MOST_ENTRIES", 3)
    with pytest.raises(OSError, match="more than 3 entries"):
        watching.poll(f"{tmp_path}/run-*/*")


def test_a_look_that_waits_is_told_and_stops_nobody(tmp_path, monkeypatch):
    """As a network's file system does that has gone: the look itself waits, whoever asks does not."""
    asked, answer = watching.threading.Event(), watching.threading.Event()

    def hang(_):
        asked.set()
        answer.wait()
        return [NEW._replace(whole=True)]

    monkeypatch.setattr(watching, "poll", hang)
    monkeypatch.setattr(watching, "LATE_S", -1)
    watch = watching.Watch(tmp_path, "checkpoints")
    asked.wait()
    assert "does not answer" in watch.state()["problem"]
    answer.set()
    wait_for(lambda: (watch.state() or {}).get("newest"), "the look to come back")


def test_further_is_a_later_step_or_epoch_and_without_both_a_later_time():
    def saved(name, time):
        return {**checkpoints.place_of(name), "time": time}

    assert checkpoints.further(saved("step_2", 1.0), None) and not checkpoints.further(None, None)
    assert checkpoints.further(saved("step_2", 1.0), saved("step_1", 2.0))
    assert not checkpoints.further(saved("step_1", 3.0), saved("step_1", 2.0))
    assert checkpoints.further(saved("net-2_1.ckpt", 3.0), saved("net-1_9.ckpt", 2.0))
    assert checkpoints.further(saved("last.ckpt", 3.0), saved("last.ckpt", 2.0))


@pytest.mark.parametrize("place", ["/a/rank_{rank}", "/a/**/b", "a/../b", "/a\0", " a"])
def test_places_that_nobody_can_watch(place):
    assert checkpoints.place_fault(place)


@pytest.mark.parametrize("place", ["", "/shared/run/step_*.pt", "checkpoints/rank_0", "/a/run-?/[ab]*"])
def test_places_that_can_be_watched(place):
    assert checkpoints.place_fault(place) is None


def test_schedulers_that_choose_the_nodes_watch_none():
    given = {"job_name": "a", "job_command": ["python", "a.py"], "job_checkpoints": "saved", "job_scheduler": "slurm"}
    (finding,) = schedulers.parse(given)[1]
    assert (finding.check, finding.found) == ("job_checkpoints", "it with job_scheduler: slurm")
    assert schedulers.parse({**given, "job_scheduler": "ssh"})[0].checkpoints == "saved"


def test_a_monitor_tells_of_them_and_of_one_cut_off(cluster):
    job = cluster(["wait"], ["wait"], max_restarts=1, n1={"checkpoints": "saved"})
    folder = job.head.dir / "saved"
    folder.mkdir()
    (folder / "step_10.pt").write_bytes(archive())
    job.start()
    wait_for(lambda: (job.state()["checkpoints"] or {}).get("newest"), "the first look")
    assert job.state()["checkpoints"]["newest"]["step"] == 10
    # Since the last look.
    (folder / "step_15.pt").write_bytes(archive())
    (folder / "step_20.pt").write_bytes(archive()[:-40])
    os.kill(job.nodes[1].pid("rank1"), signal.SIGKILL)
    wait_for(lambda: attempt(job.head) == 1, "the second attempt")
    with (job.head.dir / "logs" / "rank_0.log").open("a") as log:
        log.write("resumed from step_5.pt\nstep 6 loss 0.5\n")
    wait_for(lambda: job.state()["restarts"]["history"][0].get("first_step"), "its first step")
    os.kill(job.head.pid("rank0"), signal.SIGKILL)
    assert job.over()["state"] == "failed"
    job.all_ended()
    known = job.state()["checkpoints"]
    assert (known["host"], known["place"], known["newest"]["step"], known["problem"]) == ("n1", "saved", 15, "")
    assert (known["unfinished"]["step"], known["unfinished"]["reason"]) == (
        20,
        "its archive has no end: it was cut off",
    )
    (restart,) = job.state()["restarts"]["history"]
    assert (restart["checkpoint"], restart["resumed"]) == ("step_15.pt", "resumed from step_5.pt")
    said = checkpoints.texts(known, job.state()["end"]["finished"])
    assert said[0].startswith("newest complete checkpoint: step_15.pt (step 15, 5")
    assert said[1] == "not known to be complete: checkpoint step_20.pt: its archive has no end: it was cut off"
