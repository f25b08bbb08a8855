"""The readers of labelled pictures, on small files written here in the real formats."""

import gzip
import os
import pickle

import numpy as np
import pictures
import pytest

COLOURS = (255, 128, 7)


def record(label, colours=COLOURS):
    return bytes([label]) + b"".join(bytes([colour]) * 1024 for colour in colours)


@pytest.fixture
def binary(tmp_path):
    for number in range(1, 6):
        (tmp_path / f"data_batch_{number}.bin").write_bytes(record(number) + record(number + 1))
    (tmp_path / "test_batch.bin").write_bytes(record(9, colours=(1, 2, 3)))
    return tmp_path


def digits(folder, rows):
    with gzip.open(folder / "digits.csv.gz", "wt", encoding="ascii") as file:
        file.writelines(",".join(f"{value:.18e}" for value in row) + "\n" for row in rows)


def test_binary_records_become_pictures_in_order(binary):
    data = pictures.read("cifar10", binary)
    assert data.train_labels.tolist() == [1, 2, 2, 3, 3, 4, 4, 5, 5, 6]
    assert data.shape == (3, 32, 32)
    assert [int(value) for value in data.train[0, :, 5, 7]] == list(COLOURS)
    assert data.test_labels.tolist() == [9]
    assert [int(value) for value in data.test[0, :, 31, 0]] == [1, 2, 3]


def test_rows_run_from_left_to_right_and_top_to_bottom(binary):
    picture = np.arange(3072, dtype=np.uint32).astype(np.uint8)
    (binary / "test_batch.bin").write_bytes(b"\x00" + picture.tobytes())
    test = pictures.read("cifar10", binary).test[0]
    assert test[0, 0, 1] == 1
    assert test[0, 1, 0] == 32
    assert test[1, 2, 3] == (1024 + 2 * 32 + 3) % 256


def test_the_folder_that_the_archive_makes_is_found(binary, tmp_path):
    inner = tmp_path / "outer" / "cifar-10-batches-bin"
    inner.mkdir(parents=True)
    for file in binary.glob("*.bin"):
        file.rename(inner / file.name)
    assert len(pictures.read("cifar10", tmp_path / "outer").train) == 10


def test_generated_data_may_have_any_number_of_batches_and_cifar10_may_not(binary):
    for number in (3, 4, 5):
        (binary / f"data_batch_{number}.bin").unlink()
    assert len(pictures.read("generated", binary).train) == 4
    with pytest.raises(pictures.DataError, match=r"lacks data_batch_3.bin, data_batch_4.bin, data_batch_5.bin"):
        pictures.read("cifar10", binary)


def test_a_file_that_is_cut_off_is_named_with_its_size(binary):
    os.truncate(binary / "data_batch_2.bin", 3073 + 100)
    with pytest.raises(pictures.DataError, match=r"data_batch_2.bin has 3173 bytes, expected a multiple of 3073"):
        pictures.read("cifar10", binary)


def test_an_empty_file_is_refused(binary):
    os.truncate(binary / "test_batch.bin", 0)
    with pytest.raises(pictures.DataError, match=r"test_batch\.bin has 0 bytes"):
        pictures.read("cifar10", binary)


def test_a_label_outside_the_classes_is_refused(binary):
    (binary / "data_batch_1.bin").write_bytes(record(10))
    with pytest.raises(pictures.DataError, match="labels from 10 to 10, expected 0 to 9"):
        pictures.read("cifar10", binary)


def test_a_missing_folder_says_what_to_do(tmp_path):
    with pytest.raises(pictures.DataError, match=r"no folder .*absent; place it with the role dataset"):
        pictures.read("digits", tmp_path / "absent")


def test_a_folder_without_the_data_set_is_named(tmp_path):
    with pytest.raises(pictures.DataError, match=r"holds neither test_batch\.bin"):
        pictures.read("cifar10", tmp_path)


def test_python_format_gives_the_same_pictures_as_binary(binary, tmp_path):
    expected = pictures.read("cifar10", binary)
    folder = tmp_path / "cifar-10-batches-py"
    folder.mkdir()
    for file in list(binary.glob("*.bin")):
        records = np.fromfile(file, dtype=np.uint8).reshape(-1, 3073)
        batch = {b"data": records[:, 1:], b"labels": records[:, 0].tolist(), b"batch_label": b"as in CIFAR-10"}
        (folder / file.stem).write_bytes(pickle.dumps(batch, protocol=2))
        file.unlink()
    found = pictures.read("cifar10", tmp_path)
    assert (found.train == expected.train).all()
    assert (found.train_labels == expected.train_labels).all()


def test_a_pickle_that_runs_a_program_is_refused_and_not_run(tmp_path):
    class Malice:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "was-run"),)

    for name in ["test_batch", *[f"data_batch_{number}" for number in range(1, 6)]]:
        (tmp_path / name).write_bytes(pickle.dumps({b"data": Malice()}))
    with pytest.raises(pictures.DataError, match=r"asks for posix.mkdir, which no CIFAR-10 file needs"):
        pictures.read("cifar10", tmp_path)
    assert not (tmp_path / "was-run").exists()


def test_digits_are_scaled_and_every_fifth_is_for_testing(tmp_path):
    digits(tmp_path, [[16] + [0] * 62 + [8] + [number % 10] for number in range(10)])
    data = pictures.read("digits", tmp_path)
    assert data.shape == (1, 8, 8)
    assert data.test_labels.tolist() == [0, 5]
    assert data.train_labels.tolist() == [1, 2, 3, 4, 6, 7, 8, 9]
    assert (int(data.train[0, 0, 0, 0]), int(data.train[0, 0, 7, 7])) == (255, 128)


def test_digits_of_another_width_are_refused(tmp_path):
    digits(tmp_path, [[1, 2, 3]] * 10)
    with pytest.raises(pictures.DataError, match="a table of 10 x 3, expected 1797 x 65"):
        pictures.read("digits", tmp_path)


def test_digits_that_are_cut_off_are_refused(tmp_path):
    digits(tmp_path, [[0] * 65] * 50)
    file = tmp_path / "digits.csv.gz"
    os.truncate(file, file.stat().st_size // 2)
    with pytest.raises(pictures.DataError, match="cannot be read"):
        pictures.read("digits", tmp_path)


def test_random_pictures_are_the_same_on_every_rank():
    one, other = (pictures.read("random", None, 16) for _ in range(2))
    assert (one.train == other.train).all()
    assert len(one.train) == 16
