"""Values of a job file reach shells and files as values only."""

import json
import subprocess

import pytest
from ansible.module_utils.trainyard.job import schedulers
from ansible.module_utils.trainyard.job.file.given_environment import node_environment
from ansible.module_utils.trainyard.job.schedulers import slurm
from ansible.module_utils.trainyard.job.schedulers.records import Source, Where
from ansible.module_utils.trainyard_controller.job.schedulers.submission import rendered
from ansible.module_utils.trainyard_controller.runs.templates import quote

JOB = {"job_name": "digits", "job_command": ["true"], "job_nodes": 2, "job_scheduler": "slurm"}
JOB["job_launcher"] = "direct"


def planned(**given):
    """The sbatch script of a job, and what is wrong with it."""
    given = {**JOB, **given}
    job, findings = schedulers.parse(given)
    if job is None:
        return "", findings
    where = Where(job_id="digits-1", created="", state_dir="/var/lib/trainyard", user="train", submit_host="login",
                  known=("login",), hosts=(), node_env={})  # fmt: skip
    plan, findings = slurm.plan(job, {}, Source((), b""), where)
    return rendered(plan, given, where, "", Source((), b""))[0].submitted["job.sbatch"], findings


def named(findings):
    return {finding.check for finding in findings}


@pytest.mark.parametrize(("key", "value"), [
    ("job_partition", "gpu\ntouch /tmp/owned\n#"), ("job_account", "a b"), ("job_qos", "$(id)"), ("job_qos", "a\r"),
    ("job_gres", "gpu:1\nid"), ("job_partition", "-x"), ("job_account", "`id`"),
    ("job_sbatch_options", ["--mem=1G\nid"]), ("job_sbatch_options", ["id"]), ("job_sbatch_options", [7]),
    ("job_sbatch_options", ["--mem=1G", "--comment=\x1b]0;x"]), ("job_sbatch_options", "--mem=1G\nid"),
])  # fmt: skip
def test_what_slurm_reads_stays_one_word(key, value):
    assert key in named(planned(**{key: value})[1])


@pytest.mark.parametrize(("value", "found"), [
    (-1, "-1"), (0, "0"), (1.5, "1.5"), (True, "True"), ({"mem": "1G"}, "{'mem': '1G'}"), ("--mem=1G", "'--mem=1G'"),
    ([["--mem=1G"], "--x", {"a": 1}, 7], "['--mem=1G'], {'a': 1}, 7"), ([None], "None"), ([-1], "-1"),
])  # fmt: skip
def test_options_of_sbatch_of_another_shape_are_one_finding(value, found):
    (finding,) = (each for each in planned(job_sbatch_options=value)[1] if each.check == "job_sbatch_options")
    assert finding.found == found
    assert finding.action == "write job_sbatch_options as a YAML list of such words"


def test_names_and_options_that_are_in_use_are_right():
    given = {"job_partition": "gpu,a-b_c.d", "job_account": "x@y", "job_gres": "gpu:a100:8(S:0-1)", "job_qos": "high+1"}
    options = ["--mem=64G", "--constraint=[a&b]", "-w n[1-4]", '--comment="a b"']
    assert not set(given) & named(planned(**given)[1])
    for right in (options, [], None):
        assert "job_sbatch_options" not in named(planned(job_sbatch_options=right)[1])


EVIL = "x'\nTRAINYARD_TASK\n#SOURCE\ntouch owned\r$(touch owned)`touch owned`\\n\"é"


def test_words_stay_what_they_are_on_one_line():
    assert "\n" not in quote(EVIL) and "\r" not in quote(EVIL)
    said = subprocess.run(["bash", "-c", f"printf %s {quote(EVIL)}"], capture_output=True, check=True)
    assert said.stdout.decode() == EVIL


def test_no_value_becomes_a_line_of_the_script(tmp_path):
    """The script has of a job file the options of sbatch and the folder; the packed program has the rest."""
    given = {"job_env": {"EVIL": EVIL}, "job_command": ["true", "a\n#PROGRAM\nb"], "job_venv": EVIL,
             "job_data": [EVIL], "job_network": EVIL, "job_folder": f"{tmp_path}/x'$(touch owned)"}  # fmt: skip
    assert "job_packages" in named(planned(job_packages=[EVIL])[1])
    text, findings = planned(**given)
    assert text, findings
    for line in text.splitlines():
        assert not line.startswith("touch"), text
    assert text.splitlines().count("#PROGRAM") == 1
    script = tmp_path / "job.sbatch"
    # What bash makes of it without Slurm's commands.
    script.write_text(f"srun() {{ :; }}\n{text}")
    environment = {"PATH": "/usr/bin:/bin", "SLURM_JOB_NODELIST": "localhost", "SLURMD_NODENAME": "n1"}
    subprocess.run(["bash", script], cwd=tmp_path, env=environment, capture_output=True, timeout=240)
    (log,) = tmp_path.glob("*/jobs/digits-1/hosts/n1/logs/slurm.log")
    assert "trainyard: ended with status 0" in log.read_text()
    assert not list(tmp_path.rglob("owned"))
    assert log.parents[1].stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("scheduler", ["ssh", "slurm", "kubernetes"])
@pytest.mark.parametrize("given", [
    {"job_nodes": -1}, {"job_nodes": 10**9}, {"job_log_limit_mib": -1}, {"job_log_limit_mib": 10**7},
    {"job_nodes": "two"}, {"job_timeout": 10**5000}, {"job_nodes": -(10**5000)}, {"job_command": ["true", 10**5000]},
    {"job_env": {"A": 10**5000}}, {"job_name": "a\udcff"}, {"job_command": ["true", "\ud800"]},
    {"job_source": "\udcff"},
    {"job_env": {"\udcff": "1"}}, {"job_env": {"A": "\udcff"}}, {"job_data": ["/data/\udcff"]},
    {"job_devices": [10**5000]}, {"job_mpi_parameters": {"a": "\udcff"}},
])  # fmt: skip
def test_absurd_numbers_and_texts_are_findings_for_every_scheduler(scheduler, given):
    job, findings = schedulers.parse({**JOB, "job_scheduler": scheduler, "job_launcher": "torchrun", **given})
    assert job is None and set(given) <= named(findings)
    # All of it can be printed and kept.
    json.dumps([finding.as_dict() for finding in findings], ensure_ascii=False).encode()
    assert all(len(text) < 400 for finding in findings for text in finding.as_dict().values())


@pytest.mark.parametrize("value", [{"A": "\udcff"}, {"\udcff": "a"}, {"A": 10**5000}])
def test_so_they_are_for_one_host(value):
    env, [finding] = node_environment(value, "n1")
    assert (env, finding.host, finding.check) == ({}, "n1", "job_node_env")
