"""Checkpoints that each rank keeps for itself: the one from which all can go on."""

import re
from pathlib import Path

import pytest
import rank_checkpoints
from hypothesis import given
from hypothesis import strategies as st
from rank_checkpoints import START


def write(folder, epochs, steps=0, keep=2):
    return rank_checkpoints.write(folder, (epochs, steps), lambda file: file.write_text("state"), keep)


@pytest.mark.parametrize(
    ("of_ranks", "common"),
    [
        ([[(2, 0), (1, 0)], [(2, 0), (1, 0)]], (2, 0)),
        # A rank that was killed while it wrote is a checkpoint behind the others.
        ([[(3, 0), (2, 0)], [(2, 0), (1, 0)], [(3, 0), (2, 0)]], (2, 0)),
        ([[(2, 100), (2, 0)], [(2, 0), (1, 300)]], (2, 0)),
        ([[(2, 200), (2, 100)], [(2, 100), (2, 0)]], (2, 100)),
        ([[(3, 0), (2, 0)], [(1, 0), START]], START),
        ([[(5, 0), (4, 0)], [START, START]], START),
        ([[START, START]], START),
        ([[(12, 0)]], (12, 0)),
    ],
)
def test_the_newest_one_that_all_ranks_have(of_ranks, common):
    assert rank_checkpoints.newest_common(of_ranks) == common


@given(st.lists(st.sets(st.tuples(st.integers(0, 4), st.integers(0, 2))), min_size=1, max_size=5))
def test_every_rank_has_what_is_common(of_ranks):
    common = rank_checkpoints.newest_common(of_ranks)
    assert common == START or all(common in there for there in of_ranks)
    assert not any(done > common for done in set.intersection(*of_ranks))


@given(st.sets(st.tuples(st.integers(0, 10**5), st.integers(0, 10**6)), max_size=5))
def test_written_checkpoints_are_listed_newest_first(tmp_path_factory, dones):
    folder = tmp_path_factory.mktemp("rank")
    for done in sorted(dones):
        write(folder, *done, keep=9)
    assert rank_checkpoints.there(folder) == sorted(dones, reverse=True)


def test_only_the_newest_checkpoints_are_kept_and_reported(tmp_path):
    assert rank_checkpoints.there(tmp_path / "rank_0") == []
    for done in ((1, 0), (1, 100), (1, 200), (2, 0)):
        write(tmp_path / "rank_0", *done)
    assert rank_checkpoints.there(tmp_path / "rank_0") == [(2, 0), (1, 200)]


def test_a_checkpoint_of_one_rank_alone_replaces_no_common_one(tmp_path):
    write(tmp_path, 9)
    for epoch in (1, 2):
        write(tmp_path, epoch)
    assert rank_checkpoints.there(tmp_path) == [(9, 0), (2, 0), (1, 0)]


def test_an_interrupted_write_leaves_no_checkpoint_and_is_written_over(tmp_path):
    def interrupted(file):
        file.write_text("half")
        file.chmod(0o400)  # as MindSpore does
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space left"):
        rank_checkpoints.write(tmp_path, (1, 0), interrupted, 2)
    assert rank_checkpoints.there(tmp_path) == []
    assert write(tmp_path, 1).read_text() == "state"
    assert [file.name for file in tmp_path.iterdir()] == ["epoch-0001.ckpt"]


@pytest.mark.parametrize("framework", ["mindspore", "oneflow"])
def test_programs_that_no_unit_test_can_import_use_what_is_there(framework):
    program = (Path(__file__).parents[3] / "training" / framework / "train.py").read_text()
    used = set(re.findall(r"\brank_checkpoints\.(\w+)", program))
    assert used and [name for name in used if not hasattr(rank_checkpoints, name)] == []
