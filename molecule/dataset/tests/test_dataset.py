"""What dataset promises: complete data of a known source, equal on all nodes, repaired when damaged.

CIFAR-10 itself is too large for a test: a small archive in its exact layout stands in for it, made by this project's
own generator, from the controller and over http.
"""

import hashlib
import io
import json
import tarfile
from pathlib import Path

import pytest
from lab_jobs import wait_until

DATA = "/var/lib/trainyard/data"
SERVED = "/srv/served"
PORT = 8123


@pytest.fixture
def node(first):
    """The first node; its data sets `small` and `made` are gone after the test."""
    yield first
    first.check_output(f"sudo rm -rf {DATA}/small {DATA}/made")


@pytest.fixture
def run(run_playbook, node_names):
    """Run the role on the first node with one data set."""

    def run_with(*arguments, **entry):
        return run_playbook("changed.yml", "--limit", node_names[0], *arguments, dataset_sets=[entry])

    return run_with


def small_archive(folder, leave_out=(), extra=()):
    """Write an archive in CIFAR-10's layout with two records in each file, and return its path and sha256."""
    names = [*(f"data_batch_{number}.bin" for number in range(1, 6)), "test_batch.bin"]
    files = {name: bytes([len(name) % 10]) + bytes(3072) for name in names if name not in leave_out}
    files = {name: content * 2 for name, content in files.items()}
    path = folder / "small.tar.gz"
    with tarfile.open(path, "w:gz") as tar:
        for name, content in [*((f"cifar-10-batches-bin/{key}", value) for key, value in files.items()), *extra]:
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return str(path), hashlib.sha256(path.read_bytes()).hexdigest()


def content(host, folder):
    """Return the sums of a folder's files, without the manifest."""
    return host.check_output(f"cd {folder} && sha256sum $(ls | grep -v manifest)")


def test_the_digits_are_those_of_scikit_learn(host):
    sums = content(host, f"{DATA}/digits").split()
    assert sums == ["09f66e6debdee2cd2b5ae59e0d6abbb73fc2b0e0185d2e1957e9ebb51e23aa22", "digits.csv.gz"]
    lines = host.check_output(f"sudo -u train zcat {DATA}/digits/digits.csv.gz | wc -l")
    assert lines == "1797"


def test_the_data_belongs_to_the_training_user_and_nothing_of_the_download_stays(host):
    for path in ("digits", "digits/digits.csv.gz", "generated", "generated/test_batch.bin"):
        assert host.file(f"{DATA}/{path}").user == "train"
    assert host.file(f"{DATA}/digits").mode == 0o755
    assert host.check_output(f"ls -A {DATA} | grep '^\\.' | grep -v '\\.lock$' || true") == ""


def test_generated_records_have_their_number_and_format_and_are_the_same_on_all_nodes(host, first):
    assert host.file(f"{DATA}/generated/test_batch.bin").size == 100 * 3073
    sizes = [host.file(f"{DATA}/generated/data_batch_{number}.bin").size for number in range(1, 6)]
    assert sizes == [100 * 3073] * 5
    assert content(host, f"{DATA}/generated") == content(first, f"{DATA}/generated")


def test_a_damaged_file_is_named_and_placed_again(run_playbook, node_names, node):
    before = content(node, f"{DATA}/digits")
    node.check_output(f"echo x | sudo tee -a {DATA}/digits/digits.csv.gz")
    done = run_playbook("changed.yml", "--limit", node_names[0], dataset_sets=[{"name": "digits"}])
    done.expect(0, "digits is placed again: digits.csv.gz has 57525 bytes instead of 57523")
    assert content(node, f"{DATA}/digits") == before


def test_an_altered_byte_and_another_seed_are_reasons_to_make_it_again(run, node):
    given = {"name": "made", "kind": "generated", "train_records": 100, "test_records": 20}
    assert run(**given).rc == 0
    before = content(node, f"{DATA}/made")
    # The label byte is 0 to 9: another one makes the file differ without changing its size.
    node.check_output(f"printf '\\377' | sudo dd of={DATA}/made/data_batch_2.bin bs=1 count=1 conv=notrunc status=none")
    run(**given).expect(0, "made is placed again: data_batch_2.bin was altered")
    assert content(node, f"{DATA}/made") == before
    assert set(run(**given).changes.values()) == {0}
    assert "made is placed again: it comes from another source" in run(**given, seed=2).text
    assert content(node, f"{DATA}/made") != before


def test_an_archive_on_the_controller_is_unpacked(run, node, tmp_path):
    archive, sha256 = small_archive(tmp_path, extra=[("cifar-10-batches-bin/../../outside", b"x"), ("other/x", b"x")])
    given = {"name": "small", "kind": "cifar10", "local_file": archive, "sha256": sha256}
    run("--check", **given).expect(0)
    assert not node.file(f"{DATA}/small").exists
    run(**given).expect(0)
    assert node.file(f"{DATA}/small/cifar-10-batches-bin/data_batch_5.bin").size == 2 * 3073
    assert "outside" not in node.check_output(f"ls -R {DATA}")
    manifest = json.loads(node.check_output(f"cat {DATA}/small/manifest.json"))
    assert manifest["source"] == {"format": "binary", "sha256": sha256, "folder": "cifar-10-batches-bin"}
    # Programs that are given the folder itself find the files, too.
    assert (
        node.file(f"{DATA}/small/data_batch_5.bin").linked_to == f"{DATA}/small/cifar-10-batches-bin/data_batch_5.bin"
    )
    assert node.file(f"{DATA}/small/cifar-10-batches-bin/data_batch_5.bin").user == "train"
    assert set(run(**given).changes.values()) == {0}
    assert node.check_output(f"ls -A {DATA} | grep '^\\.' | grep -v '\\.lock$' || true") == ""


def test_an_archive_with_another_sum_is_not_copied_and_a_missing_one_is_named(run, node, tmp_path):
    archive, sha256 = small_archive(tmp_path)
    done = run(name="small", kind="cifar10", local_file=archive, sha256="0" * 64)
    done.fails(f"{archive} on the controller has sha256 {sha256}, expected {'0' * 64}. Nothing was copied")
    assert node.check_output(f"ls -A {DATA} | grep small | grep -v '\\.lock$' || true") == ""
    done = run(name="small", kind="cifar10", local_file="/proc/nowhere/small.tar.gz", sha256="0" * 64)
    done.fails("/proc/nowhere/small.tar.gz on the controller does not exist")


def test_an_archive_that_is_not_cifar10_leaves_nothing(run, node, tmp_path):
    archive, sha256 = small_archive(tmp_path, leave_out=["data_batch_4.bin"])
    done = run(name="small", kind="cifar10", local_file=archive, sha256=sha256)
    done.fails("cifar-10-batches-bin/data_batch_4.bin is not in it")
    assert node.check_output(f"ls -A {DATA} | grep small | grep -v '\\.lock$' || true") == ""


@pytest.fixture
def served(node, node_names, node_vars, tmp_path):
    """The small archive on a web server of the first node: its address and sha256."""
    archive, sha256 = small_archive(tmp_path)
    node.check_output(f"sudo mkdir -p {SERVED}")
    encoded = Path(archive).read_bytes().hex()
    node.check_output(
        f"python3 -c \"import sys; sys.stdout.buffer.write(bytes.fromhex('{encoded}'))\" "
        f"| sudo tee {SERVED}/small.tar.gz >/dev/null"
    )
    node.check_output(
        f"sudo systemd-run --quiet --unit=served --working-directory={SERVED} python3 -m http.server {PORT}"
    )
    wait_until(lambda: node.run(f"ss -Hltn sport = :{PORT}").stdout, "the server listens")
    yield f"http://{node_vars[node_names[0]]['ansible_host']}:{PORT}/small.tar.gz", sha256
    node.check_output(f"sudo systemctl stop served && sudo rm -r {SERVED}")


def test_an_archive_is_downloaded(run, node, served):
    url, sha256 = served
    run(name="small", kind="cifar10", url=url, sha256=sha256).expect(0)
    assert node.file(f"{DATA}/small/cifar-10-batches-bin/test_batch.bin").size == 2 * 3073


def test_a_download_with_another_sum_leaves_nothing(run, node, served):
    run(name="small", kind="cifar10", url=served[0], sha256="1" * 64).fails(f"did not match {'1' * 64}")
    assert node.check_output(f"ls -A {DATA} | grep small | grep -v '\\.lock$' || true") == ""


def test_a_foreign_folder_is_not_touched(run, node):
    node.check_output(f"sudo mkdir -p {DATA}/made && sudo touch {DATA}/made/precious")
    run(name="made", kind="generated").fails(f"{DATA}/made is there and was not placed by trainyard")
    assert node.file(f"{DATA}/made/precious").exists


def test_all_findings_on_the_list_come_at_once(run_playbook, node, node_names):
    sets = [
        {"name": "mnist"},
        {"name": "../x", "kind": "digits"},
        {"name": "cifar10", "sha256": "12"},
        {"name": "other", "kind": "cifar10", "url": "http://x", "local_file": "/x"},
        {"name": "made", "kind": "generated", "train_records": 1},
    ]
    run_playbook("changed.yml", "--limit", node_names[0], dataset_sets=sets).fails(
        "mnist: kind is 'mnist' expected digits, cifar10, generated",
        "a data set has the name '../x' expected a folder name",
        "cifar10: sha256 is '12' expected 64 hexadecimal digits",
        "other has a url and a local_file",
        "made: 1 train_records and 10000 test_records",
    )
    assert not node.file(f"{DATA}/made").exists


def test_a_set_larger_than_the_free_space_is_rejected(run, node):
    run(name="made", kind="generated", train_records=10**10).fails("MB are needed; make room, or choose another")
    assert not node.file(f"{DATA}/made").exists
