"""TLS of MindSpore jobs: variables of a job file, the plan, and the meaning of MindSpore's messages."""

import json

import pytest
from ansible.module_utils.trainyard.job.file import mindspore_tls
from job_samples import briefly, make_job, make_plan, member, wrong


@pytest.mark.parametrize(
    ("line", "facts"),
    [
        ("RuntimeError: The client password is invalid!", ["client certificate", "MS_TLS_CLIENT_PASSWORD"]),
        ("  what():  The server password is invalid!", ["server certificate", "MS_TLS_SERVER_PASSWORD"]),
        ("RuntimeError: Verify Cert Time failed.", ["compare the node's clock"]),
        ("RuntimeError: The key:client_cert_path's value is not exist.", ["client_cert_path", "MS_TLS_CONFIG"]),
    ],
)
def test_messages_of_mindspore_are_explained(line, facts):
    meaning = mindspore_tls.meaning(["Traceback (most recent call last):", line, ""])
    assert meaning.startswith("TLS: ") and all(fact in meaning for fact in facts)


def test_other_messages_are_not_explained():
    assert mindspore_tls.meaning(["RuntimeError: out of memory", ""]) == ""


MINDSPORE = {"launcher": "mindspore", "packages": ["mindspore"], "venv": "/venvs/mindspore", "tls": True}


def test_the_plan_has_the_configuration_and_the_names_of_the_passwords():
    members = [member(number, packages={"mindspore": "2.10.0"}) for number in range(2)]
    plan = make_plan(make_job(**MINDSPORE, secret_env=["WANDB_API_KEY"]), members).as_dict()
    assert plan["secret_env"] == ["WANDB_API_KEY", "MS_TLS_SERVER_PASSWORD", "MS_TLS_CLIENT_PASSWORD"]
    environments = [process["env"] for node in plan["nodes"] for process in node["processes"]]
    assert len(environments) == 3
    assert {env["MS_TLS_CONFIG"] for env in environments} == {f"{plan['job_dir']}/tls/config.json"}


def test_without_tls_there_is_nothing_of_it():
    plan = make_plan(make_job(**{**MINDSPORE, "tls": False}), [member(packages={"mindspore": "2.10.0"})]).as_dict()
    assert "MS_TLS" not in json.dumps(plan)


@pytest.mark.parametrize(
    ("changes", "check", "found"),
    [
        ({"launcher": "torchrun"}, "job_tls", "true with job_launcher: torchrun"),
        ({"packages": ["torch"]}, "job_packages", "['torch'] with job_tls"),
        ({"env": {"MS_TLS_CLIENT_PASSWORD": "x"}}, "job_env", "MS_TLS_CLIENT_PASSWORD"),
        ({"env": {"MS_TLS_CONFIG": "/x"}}, "job_env", "MS_TLS_CONFIG=/x"),
        *(({"tls_warning_days": days}, "job_tls_warning_days", str(days)) for days in (6, 181)),
    ],
)
def test_variables_that_a_job_with_tls_must_not_set(changes, check, found):
    assert briefly(wrong(**{**MINDSPORE, **changes})) == [("", check, found)]


def test_warning_days_that_mindspore_accepts():
    assert make_job(**MINDSPORE, tls_warning_days=180).tls
