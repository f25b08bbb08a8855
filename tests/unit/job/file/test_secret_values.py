"""Secrets of a job that stand in its other variables, and names of variables that often are those of secrets."""

import pytest
from ansible.module_utils.trainyard.base.findings import Warned
from ansible.module_utils.trainyard.job.file.secret_values import findings, hints
from job_samples import make_job, make_plan, member

SECRETS = {"T": "abc", "WANDB_API_KEY": "0123456789abcdef", "EMPTY": "", "NOTHING": None, "PIN": 1234567}


def found(job, written=None):
    made = findings(job, job if written is None else written, SECRETS)
    # No text of a finding has the value that nobody is to see.
    assert not any(value in str(each) for each in made for value in ("abcdef", "1234567"))
    return [(each.check, each.found) for each in made]


def test_a_value_in_another_variable_is_found_wherever_it_stands():
    job = {
        "job_env": {"U": "key=0123456789abcdef;", "N": 1234567},
        "job_command": ["python", "train.py", "--key=0123456789abcdef"],
        "job_mpi_parameters": {"0123456789abcdef": 1},
        "job_secret_env": ["T", "WANDB_API_KEY"],
        "job_registry_auth": {"password": "0123456789abcdef"},
        "job_restart_on": True,
    }
    assert found(job) == [
        ("job_env", "job_env.U has the value of WANDB_API_KEY in job_secret_env"),
        ("job_env", "job_env.N has the value of PIN in job_secret_env"),
        ("job_command", "job_command[2] has the value of WANDB_API_KEY in job_secret_env"),
        ("job_mpi_parameters", "a name in job_mpi_parameters has the value of WANDB_API_KEY in job_secret_env"),
    ]
    made = {each.check: each.action for each in findings(job, job, SECRETS)}
    assert made["job_command"] == "have the program read WANDB_API_KEY from its environment"


@pytest.mark.parametrize("template", ["{{ job_secret_env.T }}", "x-{{ job_secret_env['T'] }}"])
def test_a_short_value_counts_where_a_template_brought_it(template):
    job = {
        "job_env": {"U": template.replace("{{ job_secret_env.T }}", "abc").replace("{{ job_secret_env['T'] }}", "abc")}
    }
    assert found(job, {"job_env": {"U": template}}) == [("job_env", "job_env.U has the value of T in job_secret_env")]
    assert found(job) == []
    whole = {"job_env": "{{ {'U': job_secret_env.T} }}"}
    assert found(job, whole) == [("job_env", "job_env.U has the value of T in job_secret_env")]
    assert found({"job_env": {"U": "True"}}, {"job_env": {"U": "{{ 'T' in job_secret_env }}"}}) == []


def test_names_of_secrets_get_a_hint_that_stops_nothing():
    names = ["HF_TOKEN", "DB_PASSWORD", "MY_SECRET", "WANDB_API_KEY", "LICENSE_KEY", "KEY"]
    others = {
        "TOKENIZERS_PARALLELISM": "false", "MAX_TOKENS": "5", "KEYBOARD": "x", "MONKEY": "x", "SSL_KEY_FILE": "/k.pem",
        "NCCL_DEBUG": "INFO", "EMPTY_TOKEN": "", "HF_HUB_DISABLE_IMPLICIT_TOKEN": "1", "TOKEN_LIMIT": "4096",
        "USE_AUTH_TOKEN": "True", "API_KEY": "/run/secrets/key",
    }  # fmt: skip
    made = hints({**dict.fromkeys(names, "v"), **others})
    assert [each.found.partition(",")[0] for each in made] == names
    assert all(isinstance(each, Warned) for each in made) and "'v'" not in str(made)
    plan = make_plan(make_job(env={"HF_TOKEN": "v"}), [member()])
    assert [each.found for each in plan.warnings] == ["HF_TOKEN, which is named like a secret"]
