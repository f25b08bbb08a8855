"""Files that `make generate` writes are those of the table of job variables, and the table is sound."""

import subprocess
import sys
from pathlib import Path

from ansible.module_utils.trainyard.job.file.variables import VARIABLES

PROJECT = Path(__file__).resolve().parents[2]


def test_generated_files_are_not_stale():
    run = subprocess.run(
        [sys.executable, PROJECT / ".ci/generate.py", "--check"], capture_output=True, text=True, check=False
    )
    assert (run.stdout, run.returncode) == ("", 0)


def test_every_number_of_a_job_has_a_range_with_its_default_in_it():
    numbers = {name: it for name, it in VARIABLES.items() if it.type == "int" or it.most}
    assert len(numbers) > 10
    for name, it in numbers.items():
        assert it.least < it.most, name
        assert it.default in ("auto", "off") or it.least <= it.default <= it.most, name
