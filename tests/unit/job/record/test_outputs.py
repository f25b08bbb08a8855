"""Files of ranks that are brought home: which ones a node sends, and where the controller writes them."""

import base64
import os

import pytest
from ansible.module_utils.trainyard.job.run.wire.answers import checked
from ansible.module_utils.trainyard_controller.runs.outputs import brought, write_outputs
from ansible.module_utils.trainyard_node.job.record.output_reading import read_outputs
from hypothesis import given
from hypothesis import strategies as st
from job_samples import make_job, wrong

STATUS = {"known": True, "monitor_alive": False, "processes": [], "monitor": None, "cluster": None, "left": 0}


@pytest.fixture
def job_dir(tmp_path):
    folder = tmp_path / "jobs" / "digits-1"
    for name, text in {
        "results/a.csv": "aa",
        "results/deep/b.csv": "bbb",
        "model.pt": "m" * 100,
        "train.py": "x",
    }.items():
        path = folder / "source" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (folder / "node_plan.json").write_text("{}")
    return folder


def names(found):
    return sorted(found["files"])


@pytest.mark.parametrize(
    ("patterns", "expected"),
    [
        (["results/*.csv"], ["results/a.csv"]),
        (["results"], ["results/a.csv", "results/deep/b.csv"]),
        (["**/*.csv", "results"], ["results/a.csv", "results/deep/b.csv"]),
        (["nothing/*"], []),
        (["model.pt"], ["model.pt"]),
    ],
)
def test_patterns_are_below_the_working_folder(job_dir, patterns, expected):
    assert names(read_outputs(job_dir, patterns, 1 << 20)) == expected


def test_an_absolute_pattern_keeps_its_path(job_dir, tmp_path):
    (tmp_path / "scratch").mkdir()
    (tmp_path / "scratch" / "plot.svg").write_text("p")
    assert names(read_outputs(job_dir, [f"{tmp_path}/scratch/*.svg"], 1 << 20)) == [f"{tmp_path}/scratch/plot.svg"]


def test_files_beyond_the_limit_are_named_with_their_size(job_dir):
    found = read_outputs(job_dir, ["results", "model.pt"], 50)
    assert names(found) == ["results/a.csv", "results/deep/b.csv"]
    assert (found["left_out"], found["more"]) == ([{"name": "model.pt", "size": 100}], 0)


def test_a_file_beyond_the_number_of_files_is_named_with_that_reason(job_dir, tmp_path):
    for number in range(1000):
        (job_dir / "source" / f"small-{number}.csv").write_text("")
    found = read_outputs(job_dir, ["*.csv", "model.pt"], 1 << 20)
    assert len(found["files"]) == 1000 and "model.pt" not in found["files"]
    assert write_outputs(tmp_path, {"n1": {"outputs": found}})[1:] == [
        "not brought: n1: 'model.pt', beyond the 1000 smallest files"
    ]


def test_links_devices_and_pipes_are_left_out(job_dir):
    source = job_dir / "source"
    (source / "results" / "link.csv").symlink_to("/etc/hostname")
    (source / "linked").symlink_to("/etc")
    os.mkfifo(source / "results" / "pipe.csv")
    assert names(read_outputs(job_dir, ["results", "linked"], 1 << 20)) == ["results/a.csv", "results/deep/b.csv"]


def sent(files, left_out=()):
    return {
        "files": {name: base64.b64encode(text).decode() for name, text in files.items()},
        "left_out": list(left_out),
        "more": 0,
    }


def test_the_controller_writes_a_folder_for_each_host(tmp_path):
    answers = {
        "n1": {"outputs": sent({"a/b.csv": b"1", "/scratch/x": b"22"})},
        "n2": {"outputs": sent({"a/b.csv": b"2"})},
    }
    lines = write_outputs(tmp_path, answers)
    assert lines == [f"outputs     {tmp_path}/outputs: 3 files, 4 B"]
    assert (tmp_path / "outputs/n1/scratch/x").read_bytes() == b"22"
    assert (tmp_path / "outputs/n2/a/b.csv").read_bytes() == b"2" and "outputs" not in answers["n1"]


def test_the_files_that_were_brought_are_listed_and_no_link_is(tmp_path):
    write_outputs(tmp_path, {host: {"outputs": sent({"b": b"1", "a/b.csv": b"22"})} for host in ("n1", "n2")})
    (tmp_path / "outputs/n1/link").symlink_to("/etc/hostname")
    assert [(file.host, file.name, file.size) for file in brought(tmp_path)] == [
        ("n1", "b", 1), ("n1", "a/b.csv", 2), ("n2", "b", 1), ("n2", "a/b.csv", 2)
    ]  # fmt: skip
    assert brought(tmp_path / "nothing") == []


def test_a_pattern_that_matched_on_no_node_is_named(job_dir, tmp_path):
    patterns = ["model.pt", "nothing/*", "*.py", "nothing", "no\nthing"]
    unmatched = read_outputs(job_dir, patterns, 1 << 20)["unmatched"]
    assert unmatched == ["nothing/*", "nothing", "no\nthing"]
    answers = {
        host: {"outputs": {**sent({}), "unmatched": each}}
        for host, each in (("n1", unmatched), ("n2", ["nothing", "*.py", "no\nthing"]))
    }
    assert write_outputs(tmp_path, {**answers, "n3": {}}) == ["no file matched: 'no thing', 'nothing' (job_outputs)"]
    assert write_outputs(tmp_path, {"n1": {"outputs": sent({})}}) == []


def test_left_out_files_are_reported(tmp_path):
    lines = write_outputs(tmp_path, {"n1": {"outputs": sent({}, [{"name": "model.pt", "size": 3 << 30}])}, "n2": {}})
    assert lines == ["not brought: n1: 'model.pt', 3 GiB (job_outputs_limit_mib)"]


@given(st.text(max_size=60) | st.lists(st.sampled_from(["..", ".", "a", "", "/", "~"]), max_size=6).map("/".join))
def test_no_name_leads_out_of_the_folder_of_its_host(tmp_path_factory, name):
    run_dir = tmp_path_factory.mktemp("run")
    write_outputs(run_dir, {"n1": {"outputs": sent({name: b"x"})}})
    written = [path for path in run_dir.rglob("*") if path.is_file()]
    assert all(path.is_relative_to(run_dir / "outputs" / "n1") for path in written) and len(written) <= 1


@pytest.mark.parametrize(
    "names", [["a", "a/b"], ["a/b", "a"], ["\N{SNOWMAN}" * 100], ["\ud800"], ["x" * 300], ["a/" * 30 + "b"]]
)
def test_names_that_cannot_be_written_are_left_out(tmp_path, names):
    lines = write_outputs(tmp_path, {"n1": {"outputs": sent(dict.fromkeys(names, b"x"))}, "n2": {}})
    assert lines[-1].startswith("not brought: n1: ")


def test_names_with_two_lines_replace_no_other_file_and_read_as_one_name(tmp_path):
    odd = "a\nb", "a\u2028b", "a b; n2: secret"
    answer = {"changed": False, **STATUS, "logs": {}, "outputs": sent(dict.fromkeys(odd, b"odd") | {"a b": b"good"})}
    answer["outputs"]["left_out"] = [{"name": "big\n; n2: model.pt", "size": 1}]
    answers = {"n1": checked("collect", answer, "n1")}
    lines = write_outputs(tmp_path, answers)
    assert (tmp_path / "outputs/n1/a b").read_bytes() == b"good"
    assert lines[-1] == (
        "not brought: n1: 'a b', which is no usual name; n1: 'a b', which is no usual name; "
        "n1: 'big ; n2: model.pt', 1 B (job_outputs_limit_mib)"
    )


def test_two_names_of_one_place_do_not_replace_each_other(tmp_path):
    lines = write_outputs(tmp_path, {"n1": {"outputs": sent({"/scratch/x": b"1", "scratch/x": b"2"})}})
    assert (tmp_path / "outputs/n1/scratch/x").read_bytes() == b"1"
    assert lines[-1].startswith("not brought: n1: 'scratch/x', as another file has its place")


def test_a_pattern_that_is_none_matches_nothing(job_dir):
    assert names(read_outputs(job_dir, ["", "model.pt"], 1 << 20)) == ["model.pt"]


def test_an_answer_of_another_shape_is_unusable():
    answer = {"changed": False, "outputs": {"files": {"a": 1}, "left_out": [], "more": 0}}
    assert checked("collect", answer, "n1")["failed"]


@pytest.mark.parametrize("pattern", ["../x", "a/../../x", "/", ".", "", "a**"])
def test_a_pattern_that_leads_elsewhere_is_a_finding(pattern):
    (finding,) = wrong(outputs=[pattern])
    assert finding.check == "job_outputs"
    assert make_job(outputs=["a/*.csv"]).outputs == ("a/*.csv",)


def test_other_schedulers_have_no_outputs():
    assert "job_outputs" in {each.check for each in wrong(outputs=["a"], scheduler="kubernetes", launcher="mpirun")}
    assert make_job(outputs=["a"], scheduler="kubernetes", image="a/b:1").outputs == ("a",)
