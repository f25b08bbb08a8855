"""Chinese names of folders and files, and Chinese lines of a log, on a node whose language is not generated."""

import os
import sys

from test_interrupts import INVENTORY
from test_run_life import JOB, Site

SCRIPT = """echo "第 $RANK 个 rank 读 $DATA"; echo 'step 1/1 loss 0.5 损失'; echo 完成 >结果.txt; exit 3"""
# bash reports the language that is not there.
PYTHON = """#!/bin/bash
LC_ALL=zh_CN.NOWHERE LANG=zh_CN.NOWHERE exec bash -c 'exec {} "$@"' bash "$@"
"""


def test_paths_files_and_lines_may_be_chinese(tmp_path):
    folder = tmp_path / "多机训练"
    (folder / "源码").mkdir(parents=True)
    (folder / "源码" / "训练.sh").write_text(SCRIPT)
    (folder / "python").write_text(PYTHON.format(sys.executable))
    (folder / "python").chmod(0o755)
    site = Site(folder)
    site.inventory.write_text(INVENTORY.format(python=folder / "python"))
    job = {**JOB, "job_name": f"chinese{os.getpid()}", "job_source": str(folder / "源码"), "job_outputs": ["结果.txt"]}
    job["job_env"] = {"DATA": "第一批"}

    status, said = site.play("launch.yml", **{**job, "job_command": ["sh", "训练.sh"]})
    assert status == 2 and "rank 0 on here failed first: exit code 3" in said, said
    assert "| 第 0 个 rank 读 第一批" in said and "loss 0.5" in said
    [run] = [plan.parent for plan in site.runs.glob("*/plan.json")]
    assert (run / "outputs/here/结果.txt").read_text() == "完成\n"
    assert "第 0 个 rank 读 第一批" in (run / "logs/rank_0.log").read_text()
    assert "第 0 个 rank 读 第一批" in (run / "report.html").read_text()
