"""Data sets: their plan, the generated records, and their files in a folder."""

import hashlib
import io
import json
import tarfile
import zipfile
from functools import partial

import pytest
from ansible.module_utils.trainyard.software import datasets
from ansible.module_utils.trainyard_node.software import dataset_files

GENERATED = {"seed": 1, "train_records": 50, "test_records": 10}


def planned(**entry):
    sets, findings = datasets.plan([entry])
    assert not findings
    return sets[0]


def place(folder, **changes):
    source = {**GENERATED, **changes}
    folder.parent.mkdir(parents=True, exist_ok=True)
    dataset_files.place(folder, "generated", source, "", partial(dataset_files.generate, *source.values()))


def reasons(folder, source=GENERATED):
    return dataset_files.examine(folder, "generated", source, "")


def test_cifar10_has_the_vendors_address_and_sum_of_the_format():
    binary, python = planned(name="cifar10"), planned(name="cifar10", format="python")
    assert binary["url"].endswith("/cifar-10-binary.tar.gz") and python["url"].endswith("/cifar-10-python.tar.gz")
    assert binary["sha256"] != python["sha256"]
    # An empty key counts as missing, and a file on the controller replaces the address.
    assert planned(name="cifar10", url=None) == binary
    assert planned(name="cifar10", local_file="/srv/x.tar.gz")["url"] == ""


def test_space_grows_with_the_records():
    small, large = (planned(name="generated", train_records=count, test_records=10) for count in (100, 10**6))
    assert large["min_free_mb"] - small["min_free_mb"] > 3000


@pytest.mark.parametrize(
    ("entry", "finding"),
    [
        ({"name": "a/b", "kind": "digits"}, "a data set has the name 'a/b'"),
        ({"name": "..", "kind": "digits"}, "a data set has the name '..'"),
        ({"name": "faces"}, "faces: kind is 'faces'"),
        ({"name": "digits", "url": "http://x"}, "digits: digits has a url, sha256 or format"),
        ({"name": "cifar10", "url": "http://x", "local_file": "/x"}, "cifar10 has a url and a local_file"),
        ({"name": "cifar10", "sha256": "abc"}, "cifar10: sha256 is 'abc'"),
        ({"name": "generated", "test_records": 9}, "generated: 50000 train_records and 9 test_records"),
    ],
)
def test_a_wrong_entry_is_a_finding(entry, finding):
    _, findings = datasets.plan([entry])
    assert [each.found for each in findings] == [finding]


def test_all_findings_of_all_sets_come_at_once():
    _, findings = datasets.plan([{"name": "digits"}, {"name": "digits"}, {"name": "faces"}])
    assert len(findings) == 2


def test_records_are_the_same_on_every_machine():
    """Known sum: nodes that disagree about it would train on different data under one name."""
    data = b"".join(datasets.generated_records(7, "test_batch.bin", 20))
    assert len(data) == 20 * 3073
    assert hashlib.sha256(data).hexdigest() == "0464f5dd6328c5319e4c14de9eb8c759b413cb8313b6e771ff064102240e3aeb"


def test_files_and_seeds_have_different_records():
    first = list(datasets.generated_records(1, "data_batch_1.bin", 5))
    assert first != list(datasets.generated_records(1, "data_batch_2.bin", 5))
    assert first != list(datasets.generated_records(2, "data_batch_1.bin", 5))
    assert len(set(first)) == 5


def test_a_class_is_nearer_to_itself_than_to_another():
    def distance(one, other):
        return sum(abs(a - b) for a, b in zip(one[1:], other[1:]))

    records = list(datasets.generated_records(1, "x", 40))
    label = records[0][0]
    same = [distance(records[0], other) for other in records[1:] if other[0] == label]
    others = [distance(records[0], other) for other in records[1:] if other[0] != label]
    assert same
    assert max(same) < min(others)


def test_files_have_the_length_that_mindspore_reads_where_that_is_possible():
    made = planned(name="generated")
    assert set(datasets.generated_files(made["train_records"], made["test_records"]).values()) == {10_000}
    assert list(datasets.generated_files(10_000, 10_000)) == ["data_batch_1.bin", "test_batch.bin"]
    assert set(datasets.generated_files(70_000, 10_000).values()) == {10_000}
    # Other numbers of records are shared out over five batches.
    assert list(datasets.generated_files(52, 10).values()) == [11, 11, 10, 10, 10, 10]


def test_a_placed_data_set_has_no_reasons(tmp_path):
    folder = tmp_path / "data" / "made"
    assert reasons(folder) == ["it is not there yet"]
    place(folder)
    assert reasons(folder) == []
    assert [file.name for file in (tmp_path / "data").iterdir()] == ["made"]
    manifest = json.loads((folder / "manifest.json").read_text())
    assert (manifest["dataset"], manifest["source"]) == ("generated", GENERATED)


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("data_batch_1.bin", None, "data_batch_1.bin is gone"),
        ("data_batch_1.bin", b"x", "data_batch_1.bin has 1 bytes instead of 30730"),
        ("data_batch_1.bin", bytes(30730), "data_batch_1.bin was altered"),
        ("manifest.json", b"{", "manifest.json is damaged: no JSON"),
    ],
    ids=["gone", "cut off", "altered", "manifest"],
)
def test_damage_is_described(tmp_path, name, content, reason):
    place(tmp_path / "made")
    (tmp_path / "made" / name).unlink()
    if content is not None:
        (tmp_path / "made" / name).write_bytes(content)
    assert reasons(tmp_path / "made") == [reason]


def test_another_source_is_a_reason(tmp_path):
    place(tmp_path / "made")
    assert reasons(tmp_path / "made", {**GENERATED, "seed": 2}) == ["it comes from another source"]


def test_a_failed_replacement_leaves_the_old_data_and_nothing_else(tmp_path):
    (tmp_path / ".made.abc").mkdir()  # an interrupted run left it
    place(tmp_path / "made")

    def fail(folder):
        (folder / "half").write_text("x")
        raise dataset_files.DatasetFailure("on purpose")

    with pytest.raises(dataset_files.DatasetFailure, match="on purpose"):
        dataset_files.place(tmp_path / "made", "generated", GENERATED, "", fail)
    assert reasons(tmp_path / "made") == []
    assert [file.name for file in tmp_path.iterdir()] == ["made"]


def test_a_foreign_folder_is_a_finding(tmp_path):
    (tmp_path / "precious").write_text("x")
    with pytest.raises(dataset_files.DatasetFailure, match="was not placed by trainyard"):
        reasons(tmp_path)


def test_only_the_files_of_cifar10_are_taken_from_an_archive(tmp_path):
    archive = tmp_path / "c.tar.gz"
    wanted = datasets.layout("python").needed
    with tarfile.open(archive, "w:gz") as tar:
        for name in (*(f"cifar-10-batches-py/{name}" for name in wanted), "../outside", "cifar-10-batches-py/extra"):
            member = tarfile.TarInfo(name)
            member.size = 1
            tar.addfile(member, io.BytesIO(b"x"))
        link = tarfile.TarInfo("cifar-10-batches-py/readme.html")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        tar.addfile(link)
    dataset_files.place(tmp_path / "d", "cifar10", {}, "", partial(dataset_files.unpack_cifar10, archive, "python"))
    inner = tmp_path / "d/cifar-10-batches-py"
    assert sorted(file.name for file in inner.iterdir()) == sorted(wanted)
    names = sorted([*wanted, "manifest.json", "cifar-10-batches-py"])
    assert sorted(file.name for file in (tmp_path / "d").iterdir()) == names
    assert all((tmp_path / "d" / name).read_bytes() == b"x" for name in wanted)
    assert dataset_files.examine(tmp_path / "d", "cifar10", {}, "") == []
    (tmp_path / "d/test_batch").unlink()
    (inner / "data_batch_1").unlink()
    gone = ["data_batch_1 is gone", "test_batch is gone"]
    assert dataset_files.examine(tmp_path / "d", "cifar10", {}, "") == gone
    assert not (tmp_path / "outside").exists()


def test_a_download_that_is_no_archive_is_named(tmp_path):
    (tmp_path / "c.tar.gz").write_text("<html>not found</html>")
    with pytest.raises(dataset_files.DatasetFailure, match=r"c\.tar\.gz cannot be unpacked"):
        dataset_files.unpack_cifar10(tmp_path / "c.tar.gz", "binary", tmp_path)


def test_other_digits_than_scikit_learns_are_refused(tmp_path):
    (tmp_path / "out").mkdir()
    with zipfile.ZipFile(tmp_path / "w.whl", "w") as wheel:
        wheel.writestr(datasets.DIGITS_MEMBER, "1,2,3")
    with pytest.raises(dataset_files.DatasetFailure, match=r"digits\.csv\.gz has sha256"):
        dataset_files.take_digits(tmp_path / "w.whl", tmp_path / "out")
    with zipfile.ZipFile(tmp_path / "w.whl", "w") as wheel:
        wheel.writestr("other", "")
    with pytest.raises(dataset_files.DatasetFailure, match="give scikit-learn's wheel"):
        dataset_files.take_digits(tmp_path / "w.whl", tmp_path / "out")
