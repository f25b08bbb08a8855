"""Names of outputs that a job's user chose: none leads elsewhere, no two become one, and messages quote each."""

from __future__ import annotations

import os

import pytest
from ansible.module_utils.trainyard.job.run.wire.answers import checked
from ansible.module_utils.trainyard_controller.runs.outputs import write_outputs
from ansible.module_utils.trainyard_node.job.record.output_reading import read_outputs
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

EMPTY = {"known": True, "monitor_alive": False, "processes": [], "monitor": None, "cluster": None, "left": 0}
# Bytes of names: lines, colors, marks of direction, no UTF-8, what the escapes look like.
PIECES = [b"a", b"b", b" ", b"\n", b"\r\n", b"\x1b[2J", b"\xff", "\u202e".encode(), b"%0A", b"%", b"\\x1b", b"'"]


def brought(source, run_dir, host="n1", patterns=("**/*",), limit=1 << 20):
    """Send these files as a node does, and check and write them as the controller does."""
    answer = {**EMPTY, "changed": False, "logs": {}, "outputs": read_outputs(source.parent, patterns, limit)}
    answer = checked("collect", answer, host)
    assert not answer.get("failed"), answer
    notes = write_outputs(run_dir, {host: answer})
    return notes, {path for path in (run_dir / "outputs").rglob("*") if path.is_file()}


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.sets(st.lists(st.sampled_from(PIECES), min_size=1, max_size=4).map(b"".join), min_size=1, max_size=6))
def test_no_two_names_become_one(tmp_path_factory, names):
    base = tmp_path_factory.mktemp("job")
    source = base / "source"
    source.mkdir()
    for number, name in enumerate(names):
        (source / os.fsdecode(name)).write_text(str(number))
    notes, files = brought(source, base / "run")
    left = sum(text.count("another file has the name") for text in notes)
    contents = sorted(path.read_text() for path in files)
    assert len(contents) == len(set(contents)) == len(names) - left
    assert left == 0 or any(b"%" in name for name in names)
    assert all(path.relative_to(base / "run").as_posix().isprintable() for path in files)
    assert all(len(text.splitlines()) == 1 and text.isprintable() for text in notes)


def test_a_name_with_a_line_end_has_its_own_file(tmp_path):
    source = tmp_path / "source"
    source.mkdir()
    for name in ("a b", "a\nb", "a\n\nb"):
        (source / name).write_text(repr(name))
    _, files = brought(source, tmp_path / "run")
    assert {path.name: path.read_text() for path in files} == {
        "a b": "'a b'",
        "a%0Ab": repr("a\nb"),
        "a%0A%0Ab": repr("a\n\nb"),
    }


def test_a_file_in_the_place_of_another_is_named(tmp_path):
    (tmp_path / "source" / str(tmp_path / "x").strip("/")).parent.mkdir(parents=True)
    (tmp_path / "source" / str(tmp_path / "x").strip("/")).write_text("below")
    (tmp_path / "x").write_text("absolute")
    notes, files = brought(tmp_path / "source", tmp_path / "run", patterns=("**/x", str(tmp_path / "x")))
    assert [path.read_text() for path in files] == ["below"]
    assert notes[-1].startswith("not brought: n1: '/") and "', as another file has its place" in notes[-1]


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("x, 1 KiB; n2: y", "n1: 'x, 1 KiB; n2: y', 100 B"),
        ("it's (job_outputs_limit_mib)", 'n1: "it\'s (job_outputs_limit_mib)", 100 B'),
        ("a\nnot brought: z", "n1: 'a%0Anot brought: z', 100 B"),
    ],
)
def test_a_name_in_a_message_has_quotes(tmp_path, name, shown):
    source = tmp_path / "source"
    source.mkdir()
    (source / name).write_text("x" * 100)
    [note], files = brought(source, tmp_path / "run", limit=1)
    assert note == f"not brought: {shown} (job_outputs_limit_mib)" and not files
