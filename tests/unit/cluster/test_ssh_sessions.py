"""The environment of ssh sessions: the pieces of several roles in one SetEnv line."""

import json

import pytest
import session_environment
from ansible.module_utils.testing import patch_module_args
from ansible.module_utils.trainyard.cluster.session_environment import assignments, effective, read_pieces, render
from hypothesis import given
from hypothesis import strategies as st

CUDA = {"path": ["/opt/trainyard/cuda/bin"], "variables": {"CUDA_HOME": "/opt/trainyard/cuda"}}
OPENMPI = {"path": ["/opt/trainyard/openmpi/bin"], "libraries": ["/opt/trainyard/openmpi/lib"]}


def test_all_pieces_are_in_one_line():
    text = render({"openmpi": OPENMPI, "cuda": CUDA}, "train")
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    assert lines == [
        "Match User train",
        "    SetEnv PATH=/opt/trainyard/cuda/bin:/opt/trainyard/openmpi/bin:/usr/local/bin:/usr/bin:/bin "
        "LD_LIBRARY_PATH=/opt/trainyard/openmpi/lib CUDA_HOME=/opt/trainyard/cuda",
    ]
    assert render({}, "train") == ""


def test_values_with_spaces_are_quoted_and_path_needs_a_folder():
    piece = {"variables": {"NVCC_PREPEND_FLAGS": "-ccbin g++-11"}}
    assert render({"cuda": piece}, "train").endswith('SetEnv "NVCC_PREPEND_FLAGS=-ccbin g++-11"\n')
    assert assignments({"nccl": {"variables": {"NCCL_HOME": "/opt/nccl"}}}) == ["NCCL_HOME=/opt/nccl"]


NAMES = st.text("abcdefgh_", min_size=1, max_size=8)
FOLDERS = st.lists(st.text("abc/", min_size=1, max_size=8), max_size=3)


@given(st.dictionaries(NAMES, st.fixed_dictionaries({"path": FOLDERS, "libraries": FOLDERS}), max_size=4))
def test_pieces_survive_writing_and_reading(pieces):
    text = render(pieces, "train")
    assert read_pieces(text) == pieces
    assert render(read_pieces(text), "train") == text


def test_the_output_of_sshd_is_parsed():
    output = 'port 22\nsetenv PATH=/a:/b CUDA_HOME=/c "NVCC_PREPEND_FLAGS=-ccbin g++-11"\nsetenv LANG=C\n'
    assert effective(output) == {"PATH": "/a:/b", "CUDA_HOME": "/c", "NVCC_PREPEND_FLAGS": "-ccbin g++-11", "LANG": "C"}


@pytest.fixture
def sshd(tmp_path, monkeypatch):
    """A simulated sshd that rejects files with the word broken."""
    program = tmp_path / "bin/sshd"
    program.parent.mkdir()
    program.write_text('#!/bin/sh\nif grep -q broken "$3"; then echo "line 3: broken" >&2; exit 255; fi\n')
    program.chmod(0o755)
    # A real sshd on this machine would be found first.
    monkeypatch.setattr(session_environment.AnsibleModule, "get_bin_path", lambda *_, **__: str(program))


def run(capsys, file, **params):
    with patch_module_args({"file": str(file), "user": "train", **params}), pytest.raises(SystemExit):
        session_environment.main()
    return json.loads(capsys.readouterr().out)


def test_roles_add_and_remove_their_pieces(sshd, capsys, tmp_path):
    file = tmp_path / "sessions.conf"
    assert run(capsys, file, name="openmpi", **OPENMPI)["changed"]
    assert run(capsys, file, name="cuda", **CUDA)["pieces"] == ["cuda", "openmpi"]
    assert not run(capsys, file, name="cuda", **CUDA)["changed"]
    assert file.read_text() == render({"openmpi": OPENMPI, "cuda": CUDA}, "train")
    assert run(capsys, file, name="cuda")["pieces"] == ["openmpi"]
    assert run(capsys, file, name="openmpi")["changed"]
    assert not file.exists()
    assert not run(capsys, file, name="openmpi")["changed"]


def test_check_mode_shows_the_change(capsys, tmp_path):
    file = tmp_path / "sessions.conf"
    shown = run(capsys, file, name="cuda", _ansible_check_mode=True, **CUDA)
    assert shown["changed"] and "CUDA_HOME" in shown["diff"]["after"]
    assert not file.exists()


def test_a_file_that_sshd_rejects_is_not_installed(sshd, capsys, tmp_path):
    file = tmp_path / "sessions.conf"
    run(capsys, file, name="cuda", **CUDA)
    failed = run(capsys, file, name="odd", path=["/broken"])
    assert failed["failed"] and failed["msg"] == f"sshd rejects the new {file}: line 3: broken"
    assert read_pieces(file.read_text()) == {"cuda": CUDA}
    file.write_text("# piece cuda {\n")
    assert "has a piece that cannot be read" in run(capsys, file, name="cuda", **CUDA)["msg"]
