"""The choice and life of checkpoint files."""

import checkpoints
import pytest


def write(folder, epoch, text="good", keep=2):
    return checkpoints.write(folder, epoch, lambda stream: stream.write(text.encode()), keep)


def load(file):
    if file.read_text() != "good":
        raise checkpoints.UnreadableError("damaged on purpose")
    return file.name


def test_the_newest_is_chosen_by_number_not_by_name(tmp_path):
    for name in ("epoch-9999.pt", "epoch-10000.pt", "epoch-0002.pt"):
        (tmp_path / name).write_text("good")
    assert checkpoints.newest_readable(tmp_path, load, print)[1] == "epoch-10000.pt"


def test_a_damaged_checkpoint_is_skipped_and_reported(tmp_path):
    write(tmp_path, 1)
    write(tmp_path, 2, "torn")
    told = []
    assert checkpoints.newest_readable(tmp_path, load, told.append)[1] == "epoch-0001.pt"
    assert told == [f"checkpoint {tmp_path / 'epoch-0002.pt'} is passed over: damaged on purpose"]


def test_no_folder_and_only_damaged_ones_mean_no_checkpoint(tmp_path):
    assert checkpoints.newest_readable(tmp_path / "absent", load, print) is None
    write(tmp_path, 1, "torn")
    assert checkpoints.newest_readable(tmp_path, load, print) is None


def test_only_the_newest_are_kept(tmp_path):
    for epoch in range(1, 6):
        write(tmp_path, epoch, keep=3)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["epoch-0003.pt", "epoch-0004.pt", "epoch-0005.pt"]


def test_a_damaged_later_checkpoint_replaces_no_good_one(tmp_path):
    write(tmp_path, 9, "torn")
    for epoch in (1, 2):
        write(tmp_path, epoch, keep=2)
    assert [epoch for epoch, _ in checkpoints.newest_first(tmp_path)] == [9, 2, 1]


def test_an_interrupted_write_leaves_no_checkpoint_and_the_older_one_as_it_was(tmp_path):
    write(tmp_path, 1)

    def full_disk(stream):
        stream.write(b"half")
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space left"):
        checkpoints.write(tmp_path, 2, full_disk, 1)
    assert checkpoints.newest_first(tmp_path) == [(1, tmp_path / "epoch-0001.pt")]
    assert checkpoints.newest_readable(tmp_path, load, print)[1] == "epoch-0001.pt"
