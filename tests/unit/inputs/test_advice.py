"""The advice of a finding about a value leads to no further one: tests follow every form of `write ...`."""

import re
import shlex

import pytest
import yaml
from ansible.module_utils.trainyard.inputs import input_variables, job_file
from ansible.module_utils.trainyard.inputs.input_variables import COMMAND_LINE, Place
from ansible.module_utils.trainyard.job import schedulers
from documented import KNOWN
from job_samples import job_file as a_job

FILE = Place("in jobs/x.yml, line 3", "jobs/x.yml")
WRONG = {
    "job_command": [
        "python3 train.py --betas 0.9,0.99", "LR=0.1 python3 train.py", "pip list\npython3 it's.py\n",
        "cd x && ./run.sh", "a, b", "python -c 'print(1, 2)'", "echo $HOME", " ",
    ],
    "job_hosts": [["localhost"], ["a", "b"], True, " ", {"a": 1}], "job_source": [["./src it"], False],
    "job_timeout": ["2h", "", 2.5], "job_wait": ["maybe", 3], "verify_phases": ["reach", "reach, faults"],
    "job_env": ["A=1", ["A"]], "jobs_days": ["week"], "trainyard_state": [["/x"], "/\udce9"],
}  # fmt: skip


def written(action):
    """Yield the values that an action writes: as options -e, or as lines of a file."""
    for part in re.split(
        r",? (?:or|and) (?=-e |\w+: )", action.removeprefix("write ").replace("one value, such as ", "")
    ):
        part = part.removeprefix("a number without a unit, such as ").partition(", or leave ")[0]
        if not part.startswith("-e "):
            yield from yaml.safe_load(part).items()
            continue
        option = shlex.split(part)[1]
        whole = input_variables.whole_options([option], KNOWN, yaml.safe_load)
        yield option.partition("=")[0], whole.get(option, option.partition("=")[2])


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in WRONG.items() for value in values])
@pytest.mark.parametrize("place", [COMMAND_LINE, FILE], ids=["option", "file"])
def test_a_value_that_an_advice_writes_is_right(name, value, place):
    _, (finding,) = input_variables.converted({name: value}, lambda _: place, KNOWN, yaml.safe_load)
    for other, followed in written(finding.action):
        changes, findings = input_variables.converted({other: followed}, lambda _: place, KNOWN, yaml.safe_load)
        assert findings == [], finding.action
        if name == "job_command" and value.strip():
            given = {other: changes.get(other, followed)}
            assert schedulers.parse({**a_job(), **given})[1] == [], finding.action


@pytest.mark.parametrize("text", ["010", "0x10", "1_000", "1:30:00", "-010"])
def test_a_number_that_an_advice_writes_is_read_as_it_is_written(text):
    finding = input_variables.no_number("job_timeout", text, str(yaml.safe_load(text)), FILE)
    for _, value in written(finding.action):
        assert isinstance(value, int) and str(value) in finding.action


def test_texts_that_an_advice_writes():
    finding = input_variables.retyped("job_name", "", "no", "false", FILE)
    assert yaml.safe_load(finding.action.removeprefix("put it in quotes: ")) == {"job_name": "no"}
    finding = input_variables.no_value("job_venv", FILE, KNOWN["job_venv"].default)
    assert [value for _, value in written(finding.action)] == ["pytorch", ""]


def test_a_name_without_its_prefix_is_one_of_ours_unless_something_uses_it():
    given = {name: [COMMAND_LINE] for name in ("nodes", "state", "epochs", "id")}
    findings = input_variables.unknown(given, KNOWN, {"state"}, prefixed=True)
    near = [finding.action.removeprefix("did you mean ").removesuffix("?") for finding in findings]
    assert near == ["job_nodes", "job_id"] and input_variables.unknown({each: [FILE] for each in near}, KNOWN, ()) == []
    assert input_variables.unknown(given, KNOWN, ()) == [] and job_file.folder("jobs", ["jobs/a.yml"]).action.endswith(
        "@jobs/a.yml"
    )
