"""Programs and scripts of job_source that the kernel or Python would not start; each advice is followed."""

import re

import pytest
import yaml
from ansible.module_utils.trainyard.job.schedulers.own_program import findings, interpreter
from job_samples import make_job, member, packed, planned

FILES = {
    "train.py": "#!/usr/bin/env -S python3 -u\nprint(1)\n", "bare.py": "print(1)\n", "run.sh": "#!/bin/bash\ntrue\n",
    "a.plain.sh": "#!/bin/nosuch -e\n", "crlf.sh": "#!/bin/bash\r\ntrue\r\n", "crlf.py": "print(1)\r\n",
    "nb.ipynb": "{}", "bin/tool": "#!/opt/tool/run\n",
}  # fmt: skip
SOURCE = packed(FILES)


@pytest.mark.parametrize(
    ("command", "found", "action"),
    [
        (["train.py", "--lr=1"], "train.py without a folder", "write job_command: [python3, train.py, --lr=1]"),
        (["./bare.py"], "bare.py without a first line", "add it, or write job_command: [python3, bare.py]"),
        (
            ["./a.plain.sh"],
            "a.plain.sh, which is not exec",
            "chmod +x a.plain.sh or write job_command: [bash, a.plain.sh]",
        ),
        (["./crlf.sh"], "crlf.sh with lines that end as on Windows (CRLF)", "sed -i 's/\\r$//' crlf.sh"),
        (["bash", "crlf.sh"], "crlf.sh with lines that end as on Windows (CRLF)", "sed -i 's/\\r$//' crlf.sh"),
        (
            ["python3", "-u", "nb.ipynb"],
            "nb.ipynb, a notebook",
            "nbconvert --to script nb.ipynb, and name nb.py instead",
        ),
    ],
)
def test_what_cannot_start_is_found_and_the_advice_starts(command, found, action):
    (finding,) = findings(command, SOURCE)
    assert finding.found.startswith(found) and finding.action.endswith(action)
    written = re.search(r"write (job_command: .*)", finding.action)
    files = {**FILES, "crlf.sh": FILES["crlf.sh"].replace("\r", ""), "nb.py": "print(1)\n"}
    follow = yaml.safe_load(written[1])["job_command"] if written else [w.replace(".ipynb", ".py") for w in command]
    assert findings(follow, packed(files)) == []


@pytest.mark.parametrize(
    ("command", "starts"),
    [
        (["./train.py"], "python3"), (["./run.sh", "nb.ipynb"], "/bin/bash"), (["bin/tool"], "/opt/tool/run"),
        (["python", "bare.py", "x.ipynb"], ""), (["python3", "crlf.py"], ""),
        (["jupyter", "nbconvert", "nb.ipynb"], ""),
        (["/data/run.sh"], ""), (["bash", "a.plain.sh"], ""), (["./gone.sh"], ""),
    ],
)  # fmt: skip
def test_other_commands_start_and_the_first_line_names_their_program(command, starts):
    assert findings(command, SOURCE) == [] and interpreter(command, SOURCE) == starts


def test_a_job_has_the_finding_and_its_nodes_the_program_to_check():
    plan, wrong = planned(make_job(command=["./train.py"], launcher="direct"), [member(0)], source=SOURCE)
    assert wrong == [] and plan.node_plans(SOURCE.files, (), "python3")["n1"]["interpreter"] == "python3"
    _, (wrong,) = planned(make_job(command=["train.py"], launcher="direct"), [member(0)], source=SOURCE)
    assert wrong.found.startswith("train.py without a folder")
