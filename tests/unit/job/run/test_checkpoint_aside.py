"""Checkpoints that are set aside: real files, then real monitors with a small program that loads what it has saved.

The program has no framework: its checkpoints are zip archives with a CRC of each part, as torch.save writes them.
"""

import itertools
import json
import os
import signal
import struct
import zipfile
from pathlib import Path

import pytest
from ansible.module_utils.trainyard.job.run.measure import checkpoints
from ansible.module_utils.trainyard_node.job.run.evidence import checkpoint_aside, checkpoint_poll
from ansible.module_utils.trainyard_node.job.run.evidence.checkpoint_aside import Aside
from job_cluster import wait_for


def record(path, before, later=False):
    return {"name": path.name, "time": path.lstat().st_mtime, "size": 1, "before": before, "later": later}


def saved(folder, *names):
    """Make checkpoints of these names, each newer than the one before; a name that ends in / is a folder."""
    for at, name in enumerate(names):
        path = folder / name
        if name.endswith("/"):
            path.mkdir(parents=True)
            (path / "model.pt").write_text(name)
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(name)
        os.utime(path, (1000 + at, 1000 + at))


def tree(folder):
    """Return all below a folder: content of files, targets of links."""
    paths = sorted(path for path in folder.rglob("*") if not path.is_dir() or path.is_symlink())
    return {
        str(path.relative_to(folder)): str(path.readlink()) if path.is_symlink() else path.read_text() for path in paths
    }


@pytest.fixture
def place(tmp_path):
    (tmp_path / "saved").mkdir()
    (tmp_path / "job").mkdir()
    return tmp_path / "saved"


def set_aside(place, name, before, later=False, aside=None, pattern=""):
    aside = aside or Aside(place.parent / "job")
    return aside.set_aside(record(place / name, before, later), checkpoint_poll.found_at(str(place) + pattern))


def test_a_file_is_renamed_and_gets_its_name_back(place):
    saved(place, "step_1.pt", "step_2.pt")
    before, aside, wanted = tree(place), Aside(place.parent / "job"), record(place / "step_2.pt", "step_1.pt")
    assert set_aside(place, "step_2.pt", "step_1.pt", aside=aside) == ""
    assert tree(place) == {"step_1.pt": "step_1.pt", "step_2.pt.set-aside": "step_2.pt"}
    assert [sample.name for sample in checkpoint_poll.poll(str(place))] == ["step_1.pt"]
    assert [sample.name for sample in checkpoint_poll.poll(f"{place}/step_*")] == ["step_1.pt"]
    # Again, as after a reboot of the node.
    assert Aside(place.parent / "job").set_aside(wanted, []) == ""
    assert Aside(place.parent / "job").restore([wanted]) == "" and tree(place) == before
    assert Aside(place.parent / "job").restore([wanted]) == "" and tree(place) == before


def test_all_files_and_folders_of_a_step_go_together(place):
    names = ["step_1_rank0.pt", "step_1_rank1.pt", "step_2_rank0.pt", "step_2_rank1.pt", "step_2_extra/", "last.ckpt"]
    saved(place, *names, "step_2_rank1.pt.tmp")
    assert set_aside(place, "step_2_rank1.pt", "step_1_rank1.pt") == ""
    assert sorted(path.name for path in place.iterdir()) == [
        "last.ckpt", "step_1_rank0.pt", "step_1_rank1.pt", "step_2_extra.set-aside",
        "step_2_rank0.pt.set-aside", "step_2_rank1.pt.set-aside", "step_2_rank1.pt.tmp",
    ]  # fmt: skip


def test_if_one_file_cannot_be_renamed_none_is(place, monkeypatch):
    saved(place, "step_1_rank0.pt", "step_2_rank0.pt", "step_2_rank1.pt")
    (place / "latest.pt").symlink_to("step_2_rank0.pt")
    before, done, real = tree(place), [], Path.rename

    def rename(self, to):
        done.append(self.name)
        if len(done) == 3:
            raise PermissionError(13, "Permission denied", str(self))
        real(self, to)

    monkeypatch.setattr(Path, "rename", rename)
    assert set_aside(place, "step_2_rank1.pt", "step_1_rank0.pt") == "latest.pt: Permission denied"
    assert tree(place) == before and json.loads((place.parent / "job/set_aside.json").read_text()) == {"entries": []}
    monkeypatch.undo()
    monkeypatch.setattr(checkpoint_aside, "_point", lambda _: (_ for _ in ()).throw(OSError(28, "No space left")))
    assert set_aside(place, "step_2_rank1.pt", "step_1_rank0.pt") == "No space left"
    assert tree(place) == before


@pytest.mark.parametrize("after", [0, 1, 2, 3])
@pytest.mark.parametrize("back", [False, True])
def test_what_a_reboot_left_half_done_is_completed_or_undone(place, monkeypatch, after, back):
    saved(place, "step_1_rank0.pt", "step_2_rank0.pt", "step_2_rank1.pt")
    (place / "latest.pt").symlink_to("step_2_rank0.pt")
    before, left, real = tree(place), list(range(after)), Path.rename
    wanted = record(place / "step_2_rank1.pt", "step_1_rank0.pt")

    def rename(self, to):
        if not left:
            raise KeyboardInterrupt
        left.pop()
        real(self, to)

    monkeypatch.setattr(Path, "rename", rename)
    monkeypatch.setattr(checkpoint_aside, "_point", lambda _: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        set_aside(place, "step_2_rank1.pt", "step_1_rank0.pt")
    monkeypatch.undo()
    aside = Aside(place.parent / "job")
    if not back:
        assert aside.set_aside(wanted, []) == ""
        found = tree(place)
        assert (found.pop("latest.pt"), found.pop("latest.pt.set-aside")) == ("step_1_rank0.pt", "step_2_rank0.pt")
        assert sorted(found) == ["step_1_rank0.pt", "step_2_rank0.pt.set-aside", "step_2_rank1.pt.set-aside"]
    assert aside.restore([wanted]) == "" and tree(place) == before


def test_nothing_is_overwritten_when_a_name_is_taken(place):
    saved(place, "step_1.pt", "step_2.pt", "step_2.pt.set-aside", "step_2.pt.set-aside-2")
    aside, wanted = Aside(place.parent / "job"), record(place / "step_2.pt", "step_1.pt")
    assert set_aside(place, "step_2.pt", "step_1.pt", aside=aside) == ""
    assert (place / "step_2.pt.set-aside-3").read_text() == "step_2.pt"
    assert (place / "step_2.pt.set-aside").read_text() == "step_2.pt.set-aside"
    (place / "step_2.pt").write_text("saved anew")
    now = tree(place)
    assert aside.restore([wanted]) == "step_2.pt exists again" and tree(place) == now
    assert not any(checkpoints.is_aside(path.name) for path in checkpoint_poll.found_at(str(place)))


@pytest.mark.parametrize(
    ("names", "marker", "text", "new"),
    [
        (("global_step100/", "global_step200/"), "latest", "global_step200", "global_step100"),  # DeepSpeed
        (("iter_0000100/", "iter_0000200/"), "latest_checkpointed_iteration.txt", "200", "100"),  # Megatron-LM
    ],
)
def test_what_names_the_newest_folder_names_the_one_before(place, names, marker, text, new):
    saved(place, *names)
    (place / marker).write_text(text)
    first, last = (name.rstrip("/") for name in names)
    (place / "newest").symlink_to(last)
    (place / "elsewhere").symlink_to("/etc/passwd")
    (place / "first").symlink_to(first)
    before, aside, wanted = tree(place), Aside(place.parent / "job"), record(place / last, first)
    assert set_aside(place, last, first, aside=aside) == ""
    found = tree(place)
    assert (found[marker], found[f"{marker}.set-aside"]) == (new, text)
    assert (found["newest"], found["newest.set-aside"], found["first"]) == (first, last, first)
    assert found["elsewhere"] == "/etc/passwd" and f"{last}.set-aside/model.pt" in found
    assert aside.restore([wanted]) == "" and tree(place) == before
    # A marker that the program has written since then stays, and no name comes back.
    assert set_aside(place, last, first, aside=aside) == ""
    (place / marker).write_text("300")
    assert aside.restore([wanted]) == f"{marker} exists again" and (place / marker).read_text() == "300"


def test_a_marker_without_an_earlier_folder_beside_it_prevents_it(place):
    saved(place, "a/global_step100/", "b/global_step200/")
    (place / "b/latest").write_text("global_step200")
    before = tree(place)
    found = checkpoint_poll.found_at(f"{place}/*/global_step*")
    wanted = record(place / "b/global_step200", "global_step100")
    assert "global_step100 is not beside it" in Aside(place.parent / "job").set_aside(wanted, found)
    assert tree(place) == before


def test_with_losses_that_are_no_numbers_later_checkpoints_go_too(place):
    saved(place, "step_9.pt", "step_10.pt", "step_11.pt", "step_12_a.pt", "step_12_b.pt")
    # A file that was touched later is no later checkpoint.
    os.utime(place / "step_9.pt", (9999, 9999))
    assert set_aside(place, "step_10.pt", "step_9.pt", later=True) == ""
    assert [path.name for path in place.iterdir() if not checkpoints.is_aside(path.name)] == ["step_9.pt"]
    saved(place, "a.pt", "b.pt", "c.pt")
    os.utime(place / "a.pt", (9999, 9999))
    assert set_aside(place, "b.pt", "a.pt", later=True) == ""
    assert (place / "a.pt").exists() and not (place / "c.pt").exists()


def test_links_and_files_that_a_job_plants_are_harmless(place):
    saved(place, "step_1.pt", "step_2.pt")
    outside = place.parent / "outside"
    outside.write_text("kept")
    wanted = record(place / "step_2.pt", "step_1.pt")
    (place / "step_2.pt").unlink()
    (place / "step_2.pt").symlink_to(outside)
    assert (
        Aside(place.parent / "job").set_aside(wanted, checkpoint_poll.found_at(str(place)))
        == "there are 0 of step_2.pt"
    )
    (place / "step_2.pt").unlink()
    saved(place, "step_2.pt")
    (place / "step_2.pt.set-aside").symlink_to(outside)
    (place / "loop").symlink_to("loop")
    for link in ("latest", "step_2_link.pt", "step_3.pt"):
        (place / link).symlink_to(outside)
    assert set_aside(place, "step_2.pt", "step_1.pt", later=True) == ""
    assert all((place / link).is_symlink() for link in ("latest", "step_2_link.pt", "step_3.pt"))
    assert outside.read_text() == "kept" and (place / "step_2.pt.set-aside-2").read_text() == "step_2.pt"
    state = place.parent / "job/set_aside.json"
    for content in (
        "",
        "[]",
        '{"entries": [{"name": 1}]}',
        '{"entries": [{"name": "a", "time": 1, "moves": [["a"]]}]}',
    ):
        state.write_text(content)
        assert Aside(place.parent / "job").restore([wanted]) == ""
    state.unlink()
    state.symlink_to(outside)
    assert Aside(place.parent / "job")._entries == [] and outside.read_text() == "kept"


def test_the_one_before_is_seen_where_each_rank_has_a_file(place):
    saved(place, *(f"step_{step}_rank{rank}.pt" for step in (1, 2) for rank in range(6)))
    names = [sample.name for sample in checkpoint_poll.poll(str(place))]
    assert names[0] == "step_1_rank5.pt" and len(names) == checkpoints.MAX_INSPECTED + 1


# ---- real monitors


# Loads its newest checkpoint, counts on, and saves each tenth step.
PROGRAM = """
import json, math, os, pathlib, re, struct, time, zipfile
folder = pathlib.Path(os.environ["SAVED"])
pathlib.Path(f"up-{os.getpid()}").touch()
while not pathlib.Path("go").exists():
    time.sleep(0.05)
names = [path for path in folder.iterdir() if re.fullmatch(r"step_\\d+\\.pt", path.name)]
newest = max(names, key=lambda path: int(path.stem[5:]))
print(f"loading checkpoint {newest}", flush=True)
with zipfile.ZipFile(newest) as archive:
    step = json.loads(archive.read("step.json"))
    (weight,) = struct.unpack("<d", archive.read("weight")[-8:])
while True:
    step, weight = step + 1, weight * 0.99
    print(f"step {step} loss {weight:.4f}", flush=True)
    if step % 10 == 0:
        temporary = folder / f".step_{step}.pt"
        with zipfile.ZipFile(temporary, "w") as archive:
            archive.writestr("step.json", json.dumps(step))
            archive.writestr("weight", bytes(4096) + struct.pack("<d", weight))
        os.replace(temporary, folder / f"step_{step}.pt")
    time.sleep(0.1)
"""


def checkpoint(path, step, weight):
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("step.json", json.dumps(step))
        archive.writestr("weight", bytes(4096) + struct.pack("<d", weight))


def flip(path):
    """Flip a bit of the weights."""
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 4
    path.write_bytes(content)


def test_training_goes_on_from_the_one_before_a_bad_checkpoint(cluster):
    job = cluster(["train"], ["wait"], max_restarts=5, n1={"checkpoints": "saved", "checkpoint_rollback": True})
    folder = job.head.dir / "saved"
    folder.mkdir()
    for step in (10, 20, 30):
        checkpoint(folder / f"step_{step}.pt", step, 1 / step)
        os.utime(folder / f"step_{step}.pt", (1000 + step, 1000 + step))
    (job.head.dir / "source" / "rank.py").write_text(PROGRAM)
    job.head.spec["processes"][0]["env"]["SAVED"] = str(folder)
    (job.head.dir / "node_plan.json").write_text(json.dumps(job.head.spec))
    flip(folder / "step_30.pt")
    bad = (folder / "step_30.pt").read_bytes()
    job.start()
    job.head.go()
    wait_for(lambda: ((job.state()["checkpoints"] or {}).get("newest") or {}).get("step", 0) >= 40, "a new checkpoint")
    state = job.state()
    assert (folder / "step_30.pt.set-aside").read_bytes() == bad and zipfile.ZipFile(
        folder / "step_30.pt"
    ).testzip() is None
    (entry,) = [entry for entry in state["restarts"]["history"] if entry.get("set_aside")]
    assert (entry["checkpoint"], entry["first_step"], "not_set_aside" in entry) == ("step_30.pt", 21, False)
    assert entry["resumed"].endswith("step_20.pt") and state["checkpoints"]["aside"] == ["step_30.pt"]
    assert len(state["restarts"]["history"]) == 2
    job.head.signal(signal.SIGTERM)
    assert job.over()["state"] == "stopped"
    job.all_ended()
    assert "restored" not in job.state()["checkpoints"] and (folder / "step_30.pt.set-aside").read_bytes() == bad


def test_a_name_of_any_bytes_can_be_sent():
    for name in itertools.chain(["a.pt", "ü.pt"], [os.fsdecode(b"\xff.pt"), "x" * 400]):
        assert checkpoints.shown_name(name).encode() and len(checkpoints.shown_name(name)) <= 255
