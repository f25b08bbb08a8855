"""The job file: every rule with its message, and free-form input that must never crash."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from ansible.module_utils.trainyard.job import schedulers
from ansible.module_utils.trainyard.job.file import specification
from ansible.module_utils.trainyard.job.file.given_environment import RANK_VARIABLES, node_environment
from ansible.module_utils.trainyard.job.file.job import Hang, Job
from ansible.module_utils.trainyard.job.file.values import parse_devices
from ansible.module_utils.trainyard.job.file.variables import VARIABLES
from ansible.module_utils.trainyard.job.run.logs.hang import DEFAULT_PAUSE
from ansible.module_utils.trainyard.job.run.logs.progress import DEFAULT_PATTERN
from hypothesis import given
from hypothesis import strategies as st
from job_samples import VENV, briefly, job_file, make_job, wrong

PROJECT = Path(__file__).resolve().parents[4]
TORCHRUN = "job_launcher: torchrun"

scalars = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=20), st.sampled_from(["auto", "none"])
)
anything = st.recursive(
    scalars,
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(scalars, inner, max_size=4)),
    max_leaves=8,
)


def test_a_short_job_file_gets_the_defaults():
    command = ("python", "train.py")
    rest = {"venv": VENV, "progress_pattern": DEFAULT_PATTERN, "hang": Hang(None, 1800, 1800, DEFAULT_PAUSE)}
    assert make_job() == Job("digits", command, hosts="compute", **rest)


def test_a_full_job_file():
    job = make_job(
        scheduler="ssh",
        launcher="direct",
        command=["python", "train.py", "--epochs", 5, "--lr", 0.1, "--amp", True],
        source="training/pytorch",
        ranks_per_node="2",
        devices="[4,6)",
        env={"DEBUG": True, "LEVEL": 3, "EMPTY": ""},
        secret_env=["WANDB_API_KEY"],
        network="10.77.0.0/24",
        port="29500",
        timeout=60,
        max_restarts=0,
        packages=["torch"],
        data=["/data/digits"],
        min_disk_mib="512",
        progress_pattern="at (?P<step>[0-9]+)",
    )
    assert job.command == ("python", "train.py", "--epochs", "5", "--lr", "0.1", "--amp", "true")
    assert (job.ranks_per_node, job.devices, job.port, job.timeout_s) == (2, (4, 5), 29500, 60)
    # YAML's true is what shells and frameworks write in lower case.
    assert job.env == {"DEBUG": "true", "LEVEL": "3", "EMPTY": ""}
    assert (job.secret_env, job.packages, job.data) == (("WANDB_API_KEY",), ("torch",), ("/data/digits",))
    assert (job.min_disk_mib, job.progress_pattern) == (512, "at (?P<step>[0-9]+)")


# Wrong values of a variable, each with what is found.
WRONG = {
    "name": {"": "nothing", None: "nothing", "Digits": "'Digits'", "a" * 41: repr("a" * 41), "ends-": "'ends-'"},
    "launcher": {"mpi": "'mpi'", "?": "'?'"},
    "command": {"python train.py": "'python train.py'", 5: "5"},
    "devices": {"[4,4)": "'[4,4)'", "[0,99999999999)": "'[0,99999999999)'", 3: "3", "gpu0": "'gpu0'"},
    "ranks_per_node": {0: "0", True: "True"},
    "mpi_placement": {"rankfile": "'rankfile'"},
    "port": {80: "80", "http": "'http'"},
    "max_restarts": {-1: "-1"},
    "timeout": {0: "0", "auto": "'auto'"},
    "min_disk_mib": {"some": "'some'"},
    "progress_pattern": {
        "a(": "not a regular expression: missing ), unterminated subpattern at position 1",
        "step [0-9]+": "a regular expression without named groups, such as (?P<step>[0-9]+)",
        "a{99999999999}": "not a regular expression: the repetition number is too large",
    },
    "data": {"/data/digits": "'/data/digits'"},
}
# Lists and dictionaries that are found as they are written.
SHOWN = {
    "command": ([" "], [], {"python": "train.py"}, ["python", None], ["python", "a\0b"]),
    "devices": ([0, 0], [-1], [], [True], [0.5], [float("inf")]),
    "packages": ([["torch"]],),
}


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        *(({key: value}, found) for key, values in WRONG.items() for value, found in values.items()),
        *(({key: value}, repr(value)) for key, values in SHOWN.items() for value in values),
        ({"name": "two\n"}, r"'two\n'"),
        ({"ranks_per_node": 3, "devices": [0, 1]}, "3 processes for 2 devices [0, 1]"),
        ({"mpi_parameters": ["btl"]}, "a list"),
        ({"env": {"A-B": 1}}, "variable name 'A-B'"),
        ({"env": {"A\n": 1}}, r"variable name 'A\n'"),
        ({"env": {7: 1}}, "variable name 7"),
        ({"env": {"RANK": 3}}, "RANK=3"),
        ({"env": {"TRAINYARD_HOSTS": "n1"}}, "TRAINYARD_HOSTS=n1"),
        ({"env": {"A": "x\0"}}, "a NUL character in A"),
        ({"env": {"A": None}}, "A without a value"),
        ({"env": {"A": {"B": 1}}}, "A is a dict"),
        # A type of Ansible, which has its name in no document.
        ({"env": {"A": type("_AnsibleTaggedDict", (dict,), {})(B=1)}}, "A is a dict"),
        ({"env": {"A": [1]}}, "A is a list"),
        ({"env": ["A=1"]}, "a list"),
        ({"env": {"KEY": 1}, "secret_env": ["KEY"]}, "KEY in job_env and in job_secret_env"),
    ],
)
def test_each_rule_has_a_finding(changes, found):
    key = "ranks_per_node" if "ranks_per_node" in changes else next(iter(changes))
    assert briefly(wrong(**changes)) == [("", f"job_{key}", found)]


def test_secret_variables_obey_the_same_rules_and_never_show_a_value():
    assert briefly(wrong(secret_env=["WORLD_SIZE", "a b"])) == [
        ("", "job_secret_env", "WORLD_SIZE"),
        ("", "job_secret_env", "variable name 'a b'"),
    ]


def test_paths_on_nodes_may_not_begin_with_the_home_folder():
    found = wrong(venv="~/venv", data=["/data", "~/data"], checkpoints="~me/ck", command=["~/run.sh", "~/in"])
    assert [(finding.check, finding.found) for finding in found] == [
        ("job_venv", "~/venv"),
        ("job_data", "~/data"),
        ("job_checkpoints", "~me/ck"),
        ("job_command", "~/run.sh"),
    ]
    # Programs may read `~` in their own arguments and variables.
    assert make_job(command=["python", "train.py", "--data", "~/data"], env={"DATA": "~/data"}).env["DATA"] == "~/data"


def test_all_findings_come_at_once():
    checks = [item.check for item in wrong(name="X", launcher="?", command="x", port=1, timeout=0, devices="?")]
    assert checks == ["job_launcher", "job_name", "job_command", "job_devices", "job_port", "job_timeout"]


@pytest.mark.parametrize(
    ("value", "devices"),
    [
        ("auto", None),
        (None, None),
        ("none", ()),
        ([3, 1], (3, 1)),
        (["0", "2"], (0, 2)),
        ("0, 2", (0, 2)),
        ("[4,8)", (4, 5, 6, 7)),
        (" [ 0 , 1 ) ", (0,)),
    ],
)
def test_devices(value, devices):
    assert parse_devices(value) == devices


@pytest.mark.parametrize(
    ("name", "action"),
    [
        ("mpi", "did you mean mpirun?"),
        ("Torchrun", "did you mean torchrun?"),
        ("torch-run", "did you mean torchrun?"),
        ("ddp", "did you mean torchrun?"),
        ("accelerate", "did you mean torchrun?"),
        ("hccl", "did you mean rank_table?"),
        *((name, f"write job_scheduler: slurm and {TORCHRUN}") for name in ("slurm", "slrum", "srun")),
        *((name, f"write job_scheduler: kubernetes and {TORCHRUN}") for name in ("kubernetes", "k8s")),
    ],
)
def test_an_unknown_launcher_is_a_finding_with_the_likely_one(name, action):
    (finding,) = wrong(launcher=name)
    assert finding.expected == "one of direct, mindspore, mpirun, msrun, oneflow, rank_table, torchrun"
    assert (finding.check, finding.found, finding.action) == ("job_launcher", repr(name), action)


@pytest.mark.parametrize(
    ("name", "action"),
    [("slrum", "did you mean slurm?"), ("k8s", "did you mean kubernetes?"), ("pbs", "choose one of these")],
)
def test_an_unknown_scheduler_is_a_finding_with_the_likely_one(name, action):
    (finding,) = wrong(scheduler=name)
    assert (finding.check, finding.found, finding.action) == ("job_scheduler", repr(name), action)


@pytest.mark.parametrize("name", ["slurm", "kubernetes"])
def test_a_launcher_that_the_scheduler_cannot_use_is_a_finding(name):
    assert [each.check for each in wrong(scheduler=name, launcher="rank_table")] == ["job_launcher"]


def test_node_environment():
    assert node_environment({"A": 1}, "n1") == ({"A": "1"}, [])
    assert node_environment(None, "n1") == ({}, [])
    env, findings = node_environment(["A=1"], "n1")
    assert env == {}
    assert briefly(findings) == [("n1", "job_node_env", "a list")]
    env, findings = node_environment({"MASTER_ADDR": "x", "B": 2}, "n2")
    assert env == {"B": "2"}
    assert [(item.host, item.found) for item in findings] == [("n2", "MASTER_ADDR=x")]


@given(st.dictionaries(st.sampled_from(sorted(VARIABLES)).filter(lambda key: key != "job_name"), anything))
def test_any_input_gives_a_job_or_findings(changes):
    job, findings = schedulers.parse({**job_file(), **changes})
    assert (job is None) == bool(findings)
    for finding in findings:
        assert all(isinstance(part, str) for part in finding.as_dict().values())
        assert finding.check and finding.found and finding.expected and finding.action
    if job is not None:
        json.dumps([job.env, job.command, job.data, job.packages])
        assert not set(job.env) & RANK_VARIABLES
        assert all("\0" not in text for text in (*job.env, *job.env.values(), *job.command))


@given(anything, st.text(max_size=10))
def test_any_node_environment_gives_variables_or_findings(value, host):
    env, _ = node_environment(value, host)
    assert all(isinstance(part, str) and "\0" not in part for item in env.items() for part in item)


@given(st.lists(st.text(max_size=30)))
def test_every_unknown_variable_is_a_finding(names):
    assert len(specification.unknown_keys(names)) == len(set(names) - set(VARIABLES))


@pytest.mark.parametrize("path", sorted((PROJECT / "jobs").glob("*.yml")), ids=lambda path: path.stem)
def test_each_job_file_of_the_project_is_valid(path):
    given = yaml.safe_load(path.read_text())
    assert specification.unknown_keys(given) == []
    job, findings = schedulers.parse(given)
    assert job is not None and not findings, findings
    assert not job.source or (PROJECT / job.source).is_dir()
    # Another scheduler is one more line: the others mean there what they meant.
    for name, scheduler in schedulers.SCHEDULERS.items():
        there, findings = schedulers.parse({**given, "job_scheduler": name})
        if job.launcher in scheduler.LAUNCHERS:
            assert (there, findings) == (replace(job, scheduler=name), [])
        else:
            assert [finding.check for finding in findings] == ["job_launcher"]
    assert f"`jobs/{path.name}`" in (PROJECT / "docs/job-file.md").read_text()
