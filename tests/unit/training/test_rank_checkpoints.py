"""Checkpoints that each rank keeps for itself: the epoch from which all can go on."""

import pytest
import rank_checkpoints
from hypothesis import given
from hypothesis import strategies as st


def write(folder, epoch, text="state", keep=2):
    return rank_checkpoints.write(folder, epoch, lambda file: file.write_text(text), keep)


@pytest.mark.parametrize(
    ("of_ranks", "common"),
    [
        ([[2, 1], [2, 1]], 2),
        # A rank that was killed while it wrote is an epoch behind the others.
        ([[3, 2], [2, 1], [3, 2]], 2),
        ([[3, 2], [1, 0]], 0),
        ([[5, 4], [0, 0]], 0),
        ([[0, 0]], 0),
        ([[12]], 12),
    ],
)
def test_the_newest_epoch_that_all_ranks_have(of_ranks, common):
    assert rank_checkpoints.newest_common(of_ranks) == common


@given(st.lists(st.sets(st.integers(0, 9)), min_size=1, max_size=5))
def test_every_rank_has_what_is_common(of_ranks):
    common = rank_checkpoints.newest_common(of_ranks)
    assert common == 0 or all(common in epochs for epochs in of_ranks)
    assert not any(all(epoch in epochs for epochs in of_ranks) for epoch in range(common + 1, 10))


def test_only_the_newest_are_kept_and_told(tmp_path):
    assert rank_checkpoints.epochs(tmp_path / "rank_0") == []
    for epoch in (1, 2, 3):
        write(tmp_path / "rank_0", epoch)
    assert rank_checkpoints.epochs(tmp_path / "rank_0") == [3, 2]


def test_an_epoch_that_the_others_did_not_reach_pushes_no_common_one_out(tmp_path):
    write(tmp_path, 9)
    for epoch in (1, 2):
        write(tmp_path, epoch)
    assert rank_checkpoints.epochs(tmp_path) == [9, 2, 1]


def test_an_interrupted_write_leaves_no_checkpoint_and_is_written_over(tmp_path):
    def interrupted(file):
        file.write_text("half")
        file.chmod(0o400)  # as MindSpore does
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space left"):
        rank_checkpoints.write(tmp_path, 1, interrupted, 2)
    assert rank_checkpoints.epochs(tmp_path) == []
    assert write(tmp_path, 1).read_text() == "state"
    assert [file.name for file in tmp_path.iterdir()] == ["epoch-0001.ckpt"]
