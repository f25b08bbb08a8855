"""The folder of a run on the controller: what nodes send goes there, and nowhere else."""

import base64
from pathlib import Path

from ansible.module_utils.trainyard_controller.runs.run_folder import findings, write_logs


def sent(**logs):
    return {name.replace("__", "/"): base64.b64encode(text.encode()).decode() for name, text in logs.items()}


def written(run_dir):
    return {str(path.relative_to(run_dir)): path.read_text() for path in run_dir.rglob("*") if path.is_file()}


def test_logs_and_metrics_are_written_and_replaced(tmp_path):
    write_logs(tmp_path, {**sent(rank_0="one\n"), "metrics.jsonl": sent(m="{}\n")["m"]}, keep=False)
    write_logs(tmp_path, sent(rank_1="two\n", rank_0=""), keep=False)
    assert written(tmp_path) == {"logs/rank_0": "", "logs/rank_1": "two\n", "metrics.jsonl": "{}\n"}


def test_a_longer_log_of_an_ended_job_stays(tmp_path):
    write_logs(tmp_path, sent(rank_0="all of it\n", rank_1="short\n"), keep=True)
    write_logs(tmp_path, sent(rank_0="of it\n", rank_1="not so short\n"), keep=True)
    assert written(tmp_path) == {"logs/rank_0": "all of it\n", "logs/rank_1": "not so short\n"}


def test_a_folder_in_which_nobody_can_make_files_is_named_as_that():
    (finding,) = findings(Path("/proc/nowhere"))
    assert finding.found == "/proc: nobody can make files there, and there is no /proc/nowhere"
