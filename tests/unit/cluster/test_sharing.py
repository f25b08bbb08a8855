"""Which hosts share a folder: groups from their answers, and what a host finds and leaves in real folders."""

import os
import secrets
from pathlib import Path

import pytest
from ansible.module_utils.trainyard.base.shapes import misfit
from ansible.module_utils.trainyard.cluster import sharing
from ansible.module_utils.trainyard.job.run.wire.answers import checked
from ansible.module_utils.trainyard_node.agent import QUESTIONS
from ansible.module_utils.trainyard_node.machine import shared_folders
from ansible.module_utils.trainyard_node.machine.as_user import JobError
from hypothesis import given
from hypothesis import strategies as st

NAME = ".trainyard-0123456789abcdef"
NUMBERS = [f"{digit}" * 32 for digit in range(4)]


def of_kernel(place):
    return {"kernel": True, "place": NUMBERS[place], "token": "", "wrote": False}


def of_server(token=None, place=None, wrote=False):
    def number(at):
        return "" if at is None else NUMBERS[at]

    return {"kernel": False, "place": number(place), "token": number(token), "wrote": wrote}


def text(*answers):
    hosts = [f"gpu{number}" for number in range(1, len(answers) + 1)]
    return sharing.sharing(hosts, {host: each for host, each in zip(hosts, answers) if each}).text()


@pytest.mark.parametrize(
    ("answers", "expected"),
    [
        ([of_kernel(0), of_kernel(1)], "local"),
        ([of_kernel(0), of_kernel(0)], "shared by all"),
        ([of_server(1), of_server(1), of_server(1)], "shared by all"),
        ([of_server(1), of_server(1), of_kernel(0)], "shared by gpu1, gpu2; local on gpu3"),
        ([of_server(1), of_server(2)], "local"),
        ([of_server(1), of_server(1), of_server(2), of_server(2)], "shared by gpu1, gpu2; shared by gpu3, gpu4"),
        ([of_server(), of_server()], "unknown whether it is shared"),
        ([None, None], "unknown whether it is shared"),
        ([of_kernel(0), None], "local on gpu1; unknown on gpu2"),
        ([of_server(1, 2), of_server(1, 2), None], "shared by gpu1, gpu2; unknown on gpu3"),
        # A host that can neither write nor read a token, but names the same server and folder.
        ([of_server(1, 2), of_server(None, 2)], "shared by all"),
        ([of_server(None, 2), of_server(None, 2)], "shared by all"),
        ([of_server(None, 2), of_server(None, 3)], "unknown whether it is shared"),
        # The kernel's numbers say nothing of a server's.
        ([of_kernel(2), of_server(None, 2)], "local on gpu1; unknown on gpu2"),
    ],
)
def test_who_shares_a_folder(answers, expected):
    assert text(*answers) == expected


def test_many_hosts_are_named_as_spans():
    assert text(*[of_server(1)] * 16, of_kernel(0)) == "shared by gpu1 to gpu16; local on gpu17"


ANSWER = st.builds(of_server, st.none() | st.integers(0, 3), st.none() | st.integers(0, 3), st.booleans()) | st.builds(
    of_kernel, st.integers(0, 3)
)


@given(st.lists(ANSWER | st.none(), min_size=1, max_size=8))
def test_each_host_is_in_one_group_or_unknown(answers):
    hosts = [f"n{number}" for number in range(len(answers))]
    by_host = {host: each for host, each in zip(hosts, answers) if each}
    found = sharing.sharing(hosts, by_host)
    assert sorted([*found.unknown, *(host for group in found.groups for host in group)]) == hosts
    tokens = {host: each["token"] for host, each in by_host.items() if each["token"]}
    for one in tokens:
        group = next(group for group in found.groups if one in group)
        assert {host for host in group if host in tokens} == {host for host in tokens if tokens[host] == tokens[one]}


@given(st.lists(ANSWER, min_size=2, max_size=6), ANSWER)
def test_a_host_that_lies_joins_no_others(answers, lie):
    """Without the liar, hosts with a token or a kernel's folder are in the same groups as with it."""
    hosts = [f"n{number}" for number in range(len(answers))]
    honest = dict(zip(hosts, answers))

    def groups(found):
        sure = {host for host, each in honest.items() if each["kernel"] or each["token"]}
        return {frozenset(sure & {*group}) for group in found.groups} - {frozenset()}

    alone = groups(sharing.sharing(hosts, honest))
    assert groups(sharing.sharing([*hosts, "liar"], {**honest, "liar": lie})) == alone


@pytest.fixture
def network(monkeypatch):
    """Have all folders lie on NFS; a list says from which server."""
    source = ["files:/home"]
    monkeypatch.setattr(shared_folders, "mounted", lambda descriptor: ("nfs4", source[0], "/"))
    return source


def look(*folders, name=NAME, user="root"):
    found = shared_folders.look(name, [str(folder) for folder in folders], user)
    assert not misfit(found, sharing.FOLDERS)
    return [found[str(folder)] for folder in folders]


def test_on_a_local_disk_nothing_is_written(tmp_path):
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    first, same, second = look(tmp_path / "one", tmp_path / "one" / "not" / "there", tmp_path / "two")
    assert first["kernel"] and first == same and first["place"] != second["place"]
    assert [*tmp_path.rglob("*")] == [tmp_path / "one", tmp_path / "two"]


def test_the_first_host_leaves_a_token_and_the_others_read_it(tmp_path, network):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    # Two hosts share a; b is another folder of the same name there.
    (first,), (second,), (other,) = look(tmp_path / "a"), look(tmp_path / "a"), look(tmp_path / "b")
    assert first["wrote"] and first["token"] and not second["wrote"] and second["token"] == first["token"]
    assert other["token"] not in ("", first["token"])
    answers = {"n1": {"/x": first}, "n2": {"/x": second}, "n3": {"/x": other}}
    found = sharing.of_folders(["n1", "n2", "n3"], ["/x"], answers)["/x"]
    assert found.text() == "shared by n1, n2; local on n3"
    assert sharing.writers(answers) == {"n1": ["/x"], "n3": ["/x"]}
    for name in ("a", "b"):
        assert shared_folders.forget(NAME, [str(tmp_path / name)], "root") == {"left": []}
        assert [*(tmp_path / name).iterdir()] == []


def test_a_folder_that_is_not_there_yet_is_the_one_above(tmp_path, network):
    deep, above = look(tmp_path / "not" / "there" / "step_1.pt", tmp_path)
    assert deep["wrote"] and not above["wrote"] and deep["token"] == above["token"]
    assert shared_folders.forget(NAME, [str(tmp_path / "not" / "there" / "step_1.pt")], "root") == {"left": []}
    assert [*tmp_path.iterdir()] == []


def test_tokens_of_launches_that_were_killed_go_with_the_next_one(tmp_path, network):
    (tmp_path / "checkpoint").touch()
    look(tmp_path, name=".trainyard-00000000000000aa")
    look(tmp_path, name=".trainyard-00000000000000bb")
    os.utime(tmp_path / ".trainyard-00000000000000aa", (1, 1), follow_symlinks=False)
    look(tmp_path)
    shared_folders.forget(NAME, [str(tmp_path)], "root")
    # The other one may be that of a launch at this moment.
    assert {path.name for path in tmp_path.iterdir()} == {"checkpoint", ".trainyard-00000000000000bb"}


def test_what_stands_at_the_place_of_a_token_is_no_token(tmp_path, network):
    secret = tmp_path / "secret"
    secret.write_text("f" * 32)
    for number, target in enumerate([str(secret), "f" * 31, "../" + "f" * 29]):
        folder = tmp_path / str(number)
        folder.mkdir()
        (folder / NAME).symlink_to(target)
        assert look(folder)[0]["token"] == "" and secret.read_text() == "f" * 32
    (tmp_path / NAME).write_text("f" * 32)
    assert look(tmp_path)[0]["token"] == ""


@pytest.mark.parametrize("name", ["../x", ".trainyard-", "/etc/passwd", ".trainyard-0123456789abcdef/x", ""])
def test_only_names_of_tokens_are_made_or_removed(tmp_path, name):
    for function in (shared_folders.look, shared_folders.forget):
        with pytest.raises(JobError):
            function(name, [str(tmp_path)], "root")


@pytest.mark.parametrize(
    ("source", "known"),
    [
        ("files:/home", True),
        ("//files/home", True),
        ("10.0.0.1@tcp:/scratch", True),
        ("[fd00::1]:/home", True),
        # A tunnel, a tag of a virtual machine, a program: each host has its own.
        ("127.0.0.1:/", False),
        ("localhost:/home", False),
        ("[::1]:/home", False),
        ("shared0", False),
        ("sshfs", False),
    ],
)
def test_a_folder_without_a_token_is_known_by_its_server(tmp_path, network, monkeypatch, source, known):
    network[0] = source
    monkeypatch.setattr(shared_folders.os, "symlink", lambda *_, **__: (_ for _ in ()).throw(PermissionError()))
    (found,) = look(tmp_path)
    assert (found["token"], found["wrote"], bool(found["place"])) == ("", False, known)


def test_the_mount_of_a_folder_is_read_with_its_escapes(tmp_path, monkeypatch):
    descriptor = os.open(tmp_path, os.O_PATH)
    number = next(
        line.split()[1]
        for line in Path(f"/proc/self/fdinfo/{descriptor}").read_text().splitlines()
        if line.startswith("mnt_id:")
    )
    table = tmp_path / "mountinfo"
    ours = f"{number} 1 0:50 /a\\040b /x rw shared:2 - nfs4 f:/my\\040home rw"
    table.write_text(f"1 0 8:1 / / rw - ext4 /dev/sda1 rw\n{ours}\n")
    monkeypatch.setattr(shared_folders, "_MOUNTS", table)
    assert shared_folders.mounted(descriptor) == ("nfs4", "f:/my home", "/a b")
    table.write_text("")
    assert shared_folders.mounted(descriptor) == ("", "", "")
    os.close(descriptor)


def test_tokens_differ(tmp_path, network):
    names = [f".trainyard-{secrets.token_hex(8)}" for _ in range(3)]
    assert len({look(tmp_path, name=name)[0]["token"] for name in names}) == 3


def test_an_agent_answers_with_folders_also_on_a_witness(tmp_path, network):
    witness = {"witness": "w", "host": "w", "monitor_port": 1, "candidates": [["n1", "127.0.0.1"]]}
    about = {"name": NAME, "folders": [str(tmp_path)], "user": "root"}
    found = checked("preflight", QUESTIONS["preflight"](node_plan=witness, user="root", sharing=about), "w")
    assert found["findings"] == [] and found["folders"][str(tmp_path)]["wrote"]
    assert "folders" not in QUESTIONS["preflight"](node_plan=witness, user="root")
    assert checked("forget_tokens", QUESTIONS["forget_tokens"](**about), "w") == {"left": []}
    assert [*tmp_path.iterdir()] == []


def test_a_file_system_that_hangs_is_not_asked_twice(tmp_path, monkeypatch):
    tried = []

    def hang(owner, *_, **__):
        tried.append(owner)
        raise JobError("the folder of the job cannot be read in time: check its file system")

    monkeypatch.setattr(shared_folders.as_user, "run", hang)
    assert look(tmp_path, tmp_path / "x") == [shared_folders.NOTHING] * 2 and len(tried) == 1
