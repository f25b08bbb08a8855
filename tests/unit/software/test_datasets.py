"""The plan of data sets, the made-up records, and the placing of files in a folder of this machine."""

import hashlib
import io
import json
import tarfile
import zipfile

import pytest
from ansible.module_utils.trainyard.software import datasets
from ansible.module_utils.trainyard_node.software import datasets as dataset_files

GENERATED = {"seed": 1, "train_records": 50, "test_records": 10}


def planned(**entry):
    sets, findings = datasets.plan([entry])
    assert not findings
    return sets[0]


def place(folder, **changes):
    source = {**GENERATED, **changes}
    dataset_files.place(folder, "generated", source, "", dataset_files.generate(**source))


def test_cifar10_has_the_vendors_address_and_sum_of_the_format():
    binary, python = planned(name="cifar10"), planned(name="cifar10", format="python")
    assert binary["url"].endswith("/cifar-10-binary.tar.gz")
    assert python["url"].endswith("/cifar-10-python.tar.gz")
    assert binary["sha256"] != python["sha256"]


def test_a_file_on_the_controller_replaces_the_address():
    assert planned(name="cifar10", local_file="/srv/x.tar.gz")["url"] == ""


def test_an_empty_key_counts_as_missing():
    assert planned(name="cifar10", url=None) == planned(name="cifar10")


def test_space_grows_with_the_records():
    small = planned(name="generated", train_records=100, test_records=10)
    large = planned(name="generated", train_records=10**6, test_records=10)
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


def test_the_records_are_shared_out_over_five_batches():
    assert list(datasets.generated_files(52, 10).values()) == [11, 11, 10, 10, 10, 10]


def test_files_have_the_length_that_mindspore_reads_where_that_is_possible():
    made = planned(name="generated")
    assert set(datasets.generated_files(made["train_records"], made["test_records"]).values()) == {10_000}
    assert list(datasets.generated_files(10_000, 10_000)) == ["data_batch_1.bin", "test_batch.bin"]
    assert set(datasets.generated_files(70_000, 10_000).values()) == {10_000}


def test_a_placed_data_set_has_no_reasons(tmp_path):
    folder = tmp_path / "data" / "made"
    assert dataset_files.examine(folder, "generated", GENERATED, "") == ["it is not there yet"]
    place(folder)
    assert dataset_files.examine(folder, "generated", GENERATED, "") == []
    assert [file.name for file in (tmp_path / "data").iterdir()] == ["made"]


@pytest.mark.parametrize(
    ("damage", "told"),
    [
        (lambda file: file.unlink(), "data_batch_1.bin is gone"),
        (lambda file: file.write_bytes(b"x"), "data_batch_1.bin has 1 bytes instead of 30730"),
        (lambda file: file.write_bytes(bytes(30730)), "data_batch_1.bin was altered"),
    ],
    ids=["gone", "cut off", "altered"],
)
def test_damage_is_described(tmp_path, damage, told):
    place(tmp_path / "made")
    damage(tmp_path / "made" / "data_batch_1.bin")
    assert dataset_files.examine(tmp_path / "made", "generated", GENERATED, "") == [told]


def test_a_damaged_manifest_and_another_source_are_reasons(tmp_path):
    place(tmp_path / "made")
    other = {**GENERATED, "seed": 2}
    assert dataset_files.examine(tmp_path / "made", "generated", other, "") == ["it comes from another source"]
    (tmp_path / "made" / "manifest.json").write_text("{")
    assert dataset_files.examine(tmp_path / "made", "generated", GENERATED, "") == ["manifest.json is damaged"]


def test_a_failed_replacement_leaves_the_old_data_and_nothing_else(tmp_path):
    place(tmp_path / "made")

    def fail(folder):
        (folder / "half").write_text("x")
        raise dataset_files.DatasetFailure("on purpose")

    with pytest.raises(dataset_files.DatasetFailure, match="on purpose"):
        dataset_files.place(tmp_path / "made", "generated", GENERATED, "", fail)
    assert dataset_files.examine(tmp_path / "made", "generated", GENERATED, "") == []
    assert [file.name for file in tmp_path.iterdir()] == ["made"]


def test_the_rest_of_an_interrupted_run_is_removed(tmp_path):
    (tmp_path / ".made.abc").mkdir()
    place(tmp_path / "made")
    assert [file.name for file in tmp_path.iterdir()] == ["made"]


def test_a_foreign_folder_is_a_finding(tmp_path):
    (tmp_path / "precious").write_text("x")
    with pytest.raises(dataset_files.DatasetFailure, match="was not placed by trainyard"):
        dataset_files.examine(tmp_path, "generated", GENERATED, "")


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
    dataset_files.place(tmp_path / "d", "cifar10", {}, "", dataset_files.unpack_cifar10(archive, "python"))
    inner = tmp_path / "d/cifar-10-batches-py"
    assert sorted(file.name for file in inner.iterdir()) == sorted(wanted)
    names = sorted([*wanted, "manifest.json", "cifar-10-batches-py"])
    assert sorted(file.name for file in (tmp_path / "d").iterdir()) == names
    assert all((tmp_path / "d" / name).read_bytes() == b"x" for name in wanted)
    assert dataset_files.examine(tmp_path / "d", "cifar10", {}, "") == []
    (tmp_path / "d/test_batch").unlink()
    (inner / "data_batch_1").unlink()
    told = ["data_batch_1 is gone", "test_batch is gone"]
    assert dataset_files.examine(tmp_path / "d", "cifar10", {}, "") == told
    assert not (tmp_path / "outside").exists()


def test_a_download_that_is_no_archive_is_named(tmp_path):
    (tmp_path / "c.tar.gz").write_text("<html>not found</html>")
    with pytest.raises(dataset_files.DatasetFailure, match=r"c\.tar\.gz cannot be unpacked"):
        dataset_files.unpack_cifar10(tmp_path / "c.tar.gz", "binary")(tmp_path)


def test_other_digits_than_scikit_learns_are_refused(tmp_path):
    (tmp_path / "out").mkdir()
    with zipfile.ZipFile(tmp_path / "w.whl", "w") as wheel:
        wheel.writestr(datasets.DIGITS_MEMBER, "1,2,3")
    with pytest.raises(dataset_files.DatasetFailure, match=r"digits\.csv\.gz has sha256"):
        dataset_files.take_digits(tmp_path / "w.whl")(tmp_path / "out")
    with zipfile.ZipFile(tmp_path / "w.whl", "w") as wheel:
        wheel.writestr("other", "")
    with pytest.raises(dataset_files.DatasetFailure, match="give scikit-learn's wheel"):
        dataset_files.take_digits(tmp_path / "w.whl")(tmp_path / "out")


def test_the_manifest_names_the_source(tmp_path):
    place(tmp_path / "made")
    manifest = json.loads((tmp_path / "made" / "manifest.json").read_text())
    assert (manifest["dataset"], manifest["source"]) == ("generated", GENERATED)
