"""Checkpoints from outside: names, forms, which is the newest complete one; real files, and a real monitor."""

import io
import json
import os
import struct
import zipfile

import pytest
from ansible.module_utils.trainyard.base.shapes import misfit
from ansible.module_utils.trainyard.job import schedulers
from ansible.module_utils.trainyard.job.record.masking import forms
from ansible.module_utils.trainyard.job.run.logs.progress import DEFAULT_PATTERN
from ansible.module_utils.trainyard.job.run.measure import checkpoints
from ansible.module_utils.trainyard.job.run.measure.checkpoints import History, Sample
from ansible.module_utils.trainyard.job.run.wire import messages
from ansible.module_utils.trainyard_node.job.run.evidence import checkpoint_poll
from ansible.module_utils.trainyard_node.job.run.evidence.log_tail import Tail
from hypothesis import given
from hypothesis import strategies as st
from job_cluster import wait_for


@pytest.mark.parametrize(
    ("name", "step", "epoch"),
    [
        ("epoch=3-step=1000.ckpt", 1000, 3),  # Lightning
        ("global_step100", 100, None),  # DeepSpeed
        ("iter_0000100", 100, None),  # Megatron-LM
        ("checkpoint-500", 500, None),  # Hugging Face
        ("resnet-2_300.ckpt", 300, 2),  # MindSpore
        ("epoch-0007-00300.ckpt", 300, 7),
        ("000100", 100, None),  # Orbax
        ("last.ckpt", None, None),
        ("model-v2.pt", None, None),
        ("misstep3.pt", None, None),
        ("resnet50.pth", None, None),
    ],
)
def test_steps_and_epochs_in_names(name, step, epoch):
    assert checkpoints.place_of(name) == {"step": step, "epoch": epoch}


@given(st.text())
def test_any_name_can_be_read(name):
    place = checkpoints.place_of(name)
    assert all(value is None or 0 <= value < 1 << 62 for value in place.values())
    checkpoints.is_temporary(name), checkpoints.is_checkpoint_name(name), sorted([name, "a1"], key=checkpoints.natural)


STARTS = [
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
]
OTHERS = [
    "step 5/500 loss 0.2",
    "saved checkpoint step_10.pt",
    "Loading checkpoint shards: 100%|##########| 2/2",
    "Loading pretrained weights from resnet50.pth",
    "loading dataset from /data/train.pt",
    "continue?",
    "loaded 5000 pictures",
]
TEMPORARY = [".step_3.pt", "step_3.pt.tmp", "tmp-checkpoint-500", "a.partial", "x.tmp.123", "x~"]
FINAL = ["step_3.pt", "attempt_3.pt", "template.pt", "temperature.ckpt", "checkpoint-500"]
UNUSABLE = ["/a/rank_{rank}", "/a/**/b", "a/../b", "/a\0", " a"]
USABLE = ["", "/shared/run/step_*.pt", "checkpoints/rank_0", "/a/run-?/[ab]*"]


@pytest.mark.parametrize(
    ("accepts", "yes", "no"),
    [
        (checkpoints.names_start, STARTS, OTHERS),
        (checkpoints.is_temporary, TEMPORARY, FINAL),
        (checkpoints.place_problem, UNUSABLE, USABLE),
    ],
)
def test_lines_names_and_places(accepts, yes, no):
    assert [text for text in yes if not accepts(text)] == [text for text in no if accepts(text)] == []


def test_the_last_such_line_before_the_first_step_counts(tmp_path):
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
def test_a_truncated_file_is_incomplete(tmp_path, name, whole):
    path = tmp_path / name
    path.write_bytes(whole)
    assert checkpoint_poll._form(path, len(whole)) == ("", True)
    for length in (9, 30, len(whole) // 2, len(whole) - 30, len(whole) - 23):
        path.write_bytes(whole[:length])
        fault, sure = checkpoint_poll._form(path, length)
        assert fault and sure, length


@given(st.binary(), st.binary(max_size=60), st.sampled_from(["a.pt", "a.safetensors", "a.ckpt"]))
def test_any_bytes_can_be_checked(head, tail, name):
    checkpoints.file_problem(name, len(head) + len(tail), head, tail)
    checkpoints.file_problem("a.safetensors", 99, struct.pack("<Q", len(tail)) + tail, tail)


def test_folders_of_torch_distributed_checkpoint():
    assert checkpoints.folder_problem({"": ["__0_0.distcp", ".metadata"]}) == ("", True)
    assert checkpoints.folder_problem({"": ["__0_0.distcp"]})[0].startswith("no .metadata in it")
    assert checkpoints.folder_problem({"": ["__0_0.distcp", ".metadata.tmp"]})[0].startswith(".metadata.tmp")
    # As Hugging Face saves under FSDP: the states side by side, and files beside them.
    inside = {"optimizer_0": ["__0_0.distcp", ".metadata"], "": ["trainer_state.json"]}
    assert checkpoints.folder_problem(inside) == ("", True)
    assert "model_0" in checkpoints.folder_problem({**inside, "model_0": ["__0_0.distcp"]})[0]


def test_markers_of_deepspeed_and_megatron_name_the_newest_complete_folder(tmp_path):
    for number, tag in enumerate(("global_step100", "global_step200", "global_step300")):
        (tmp_path / tag).mkdir()
        (tmp_path / tag / "mp_rank_00_model_states.pt").write_bytes(archive())
        os.utime(tmp_path / tag / "mp_rank_00_model_states.pt", (1000 + number, 1000 + number))
    (tmp_path / "latest").write_text("global_step200")
    found = {sample.name: sample for sample in checkpoint_poll.poll(str(tmp_path))}
    assert [found[f"global_step{step}00"].complete for step in (1, 2, 3)] == [False, True, False]
    assert "does not name it yet" in found["global_step300"].problem
    assert checkpoints.marked(["iter_0000100", "iter_0000200"], "100\n") == ({"iter_0000100"}, {"iter_0000200"})
    assert checkpoints.marked(["iter_0000100"], "release") == (set(), set())


OLD = Sample("step_1.ckpt", 10.0, 5, 1)
NEW = Sample("step_2.ckpt", 20.0, 5, 1)


def test_two_equal_samples_while_ranks_run_make_a_checkpoint_complete():
    history = History()
    first = history.add([OLD], 0, 0.0, True)
    assert (first["newest"], first["unfinished"]["reason"]) == (None, "it was written just now")
    earlier = History().add([OLD], 0, 15.0, True)["unfinished"]
    assert earlier["reason"] == "it was there before the job, and seen once"
    assert history.add([OLD], 0, 0.0, True)["newest"]["step"] == 1
    grown = history.add([OLD, NEW], 0, 0.0, True)
    assert (grown["newest"]["step"], grown["unfinished"]["step"]) == (1, 2)
    assert history.add([OLD, NEW._replace(size=6)], 0, 0.0, True)["unfinished"]["step"] == 2
    done = history.add([OLD, NEW._replace(size=6)], 0, 0.0, True)
    assert (done["newest"]["step"], done["unfinished"]) == (2, None)


def test_a_checkpoint_written_as_an_attempt_ended_is_not_complete():
    history = History()
    for _ in range(2):
        history.add([OLD], 0, 0.0, True)
    assert history.add([OLD, NEW], 0, 0.0, False)["unfinished"]["reason"] == "it was written as the ranks ended"
    for _ in range(3):
        known = history.add([OLD, NEW], 1, 25.0, True)
        assert known["newest"]["step"] == 1
        assert known["unfinished"]["reason"] == "it was being written as an attempt ended"
    # Its own form may prove it all the same, and the next attempt may write it anew.
    assert history.add([OLD, NEW._replace(complete=True)], 1, 25.0, True)["newest"]["step"] == 2
    again = NEW._replace(time=30.0, size=7)
    assert history.add([OLD, again], 1, 25.0, True)["newest"]["step"] == 1
    assert history.add([OLD, again], 1, 25.0, True)["newest"]["step"] == 2


def test_a_checkpoint_that_a_later_one_of_its_attempt_follows_is_complete():
    """A job that was killed after four seconds had three checkpoints, and named none."""
    three = [Sample(f"checkpoint-{step}", float(step), 5, 7) for step in (20, 40, 60)]
    known = History().add(three, 0, 0.0, False)
    assert (known["newest"]["step"], known["unfinished"]["step"], known["last"]["before"]) == (40, 60, "checkpoint-40")
    cut = [three[0]._replace(problem="cut"), *three[1:]]
    assert History().add(cut[:2], 0, 0.0, False)["newest"] is None
    # The later one is of another writer, the same checkpoint, or of another attempt.
    for other, began in (("best-60", 0.0), ("checkpoint-40", 0.0), ("checkpoint-60", 50.0)):
        history = History()
        history.add([], 0, 0.0, True)
        assert history.add([three[1], three[2]._replace(name=other)], 1, began, True)["newest"] is None
    assert checkpoints.checkpoint_line({"newest": None, "unfinished": known["unfinished"]}, 61.0).endswith(
        "60 may be incomplete"
    )


@pytest.mark.parametrize(
    ("state", "complete", "problem"),
    [
        ('{"global_step": 20}\n', True, ""),
        ('{"global_st', False, "trainer_state.json: it was cut off"),
        ("", False, ""),
        (None, False, ""),
    ],
)
def test_the_trainer_writes_its_state_last(tmp_path, state, complete, problem):
    folder = tmp_path / "checkpoint-20"
    folder.mkdir()
    (folder / "model.safetensors").write_bytes(safetensors())
    if state is not None:
        (folder / "trainer_state.json").write_text(state)
    (found,) = checkpoint_poll.poll(str(tmp_path))
    assert (found.complete, found.problem) == (complete, problem)


SAMPLES = st.lists(
    st.builds(Sample, st.sampled_from("abc"), st.floats(0, 99), st.integers(0, 3), st.just(1),
              st.sampled_from(["", "cut"]), st.booleans()),
    max_size=3, unique_by=lambda sample: sample.name,
)  # fmt: skip


@given(st.lists(st.tuples(SAMPLES, st.booleans()), max_size=6))
def test_an_incomplete_checkpoint_is_never_the_newest_complete_one(rounds):
    history = History()
    for samples, running in rounds:
        known = history.add(samples, 0, 0.0, running)
        names = {sample.name: sample for sample in samples}
        if known["newest"]:
            assert not names[known["newest"]["name"]].problem
        if known["unfinished"]:
            assert known["unfinished"]["time"] == max(sample.time for sample in samples)
        assert not misfit({**known, "problem": ""}, messages._CHECKPOINTS)


def test_other_entries_of_the_folder_are_ignored(tmp_path):
    (tmp_path / "step_1.pt").write_bytes(archive())
    (tmp_path / "step_2.pt.tmp").write_bytes(b"half")
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "step_9.pt").symlink_to("step_1.pt")
    (tmp_path / "loop").symlink_to("loop")
    os.mkfifo(tmp_path / "step_8.pt")
    (tmp_path / "step-3").mkdir()
    (tmp_path / "step-3" / "up").symlink_to(tmp_path)
    os.mkfifo(tmp_path / "step-3" / "pipe")
    found = {sample.name: sample for sample in checkpoint_poll.poll(str(tmp_path))}
    assert set(found) == {"step_1.pt", "step_2.pt.tmp", "step-3"}
    assert found["step_1.pt"].complete and found["step_2.pt.tmp"].problem
    assert {sample.name for sample in checkpoint_poll.poll(f"{tmp_path}/step_*.pt")} == {"step_1.pt"}
    for place in ("loop/x/step_1.pt", "not-there"):
        with pytest.raises(OSError):
            checkpoint_poll.poll(f"{tmp_path}/{place}")
    assert checkpoint_poll.poll(f"{tmp_path}/not-there/*.pt") == []


def test_a_pattern_may_have_wildcards_in_each_part_and_reads_bounded_entries(tmp_path, monkeypatch):
    for run in ("run-1", "run-2"):
        (tmp_path / run).mkdir()
        (tmp_path / run / f"{run}-step=7.ckpt").write_bytes(archive())
    assert len(checkpoint_poll.poll(f"{tmp_path}/run-*/*step=*.ckpt")) == 2
    monkeypatch.setattr(checkpoint_poll, "MAX_ENTRIES", 3)
    with pytest.raises(OSError, match="more than 3 entries"):
        checkpoint_poll.poll(f"{tmp_path}/run-*/*")


def test_a_poll_that_hangs_is_reported_and_blocks_nothing(tmp_path, monkeypatch):
    """A network file system whose server is gone blocks the poll, but not the monitor."""
    asked, answer = checkpoint_poll.threading.Event(), checkpoint_poll.threading.Event()

    def hang(_):
        asked.set()
        answer.wait()
        return [NEW._replace(complete=True)]

    monkeypatch.setattr(checkpoint_poll, "poll", hang)
    monkeypatch.setattr(checkpoint_poll, "LATE_S", -1)
    watch = checkpoint_poll.Watch(tmp_path, "checkpoints")
    asked.wait()
    assert "does not answer" in watch.state()["problem"]
    answer.set()
    wait_for(lambda: (watch.state() or {}).get("newest"), "the poll to return")


def test_the_further_checkpoint_has_the_later_step_epoch_or_time():
    def further(name, other):
        """A later checkpoint than another one, or than none."""
        found = [each and {**checkpoints.place_of(each), "time": time} for time, each in ((2.0, name), (1.0, other))]
        return checkpoints.further(*found)

    assert further("step_2", None) and not further(None, None)
    assert further("step_2", "step_1") and not further("step_1", "step_1")
    assert further("net-2_1.ckpt", "net-1_9.ckpt") and further("last.ckpt", "last.ckpt")


def test_jobs_without_our_monitors_have_no_checkpoints_setting():
    given = {"job_name": "a", "job_command": ["python", "a.py"], "job_checkpoints": "saved"}
    found = [
        (each.check, each.found)
        for each in schedulers.parse({**given, "job_scheduler": "kubernetes", "job_launcher": "mpirun"})[1]
    ]
    assert ("job_checkpoints", "it with an MPIJob") in found
    for scheduler in ("ssh", "slurm"):
        assert schedulers.parse({**given, "job_scheduler": scheduler})[0].restarts.checkpoints == "saved"
