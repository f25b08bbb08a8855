"""TLS of MindSpore jobs: what a job file may say, what the plan has of it, and what MindSpore's own words mean."""

from __future__ import annotations

import json

import pytest
from ansible.module_utils.trainyard.job.file import mindspore_tls as tls
from job_samples import job_file, make_job, make_plan, member, texts, wrong


@pytest.mark.parametrize(
    ("line", "meaning"),
    [
        (
            "RuntimeError: The client password is invalid!",
            "TLS: the script did not hand on the password of its client certificate, which is in "
            "MS_TLS_CLIENT_PASSWORD",
        ),
        (
            "  what():  The server password is invalid!",
            "TLS: the script did not hand on the password of its server certificate, which is in "
            "MS_TLS_SERVER_PASSWORD",
        ),
        (
            "RuntimeError: Verify Cert Time failed.",
            "TLS: the certificates were good on the controller: compare the node's clock with the controller's",
        ),
        (
            "RuntimeError: The key:client_cert_path's value is not exist.",
            "TLS: no file for client_cert_path: MS_TLS_CONFIG of another job, or of one that has ended",
        ),
        ("RuntimeError: out of memory", ""),
    ],
)
def test_messages_of_mindspore_are_explained(line, meaning):
    assert tls.meaning(["Traceback (most recent call last):", line, ""]) == meaning


MINDSPORE = {"launcher": "mindspore", "packages": ["mindspore"], "venv": "/venvs/mindspore", "tls": True}


def test_the_plan_has_the_configuration_and_the_names_of_the_passwords():
    plan = make_plan(
        make_job(**MINDSPORE, secret_env=["WANDB_API_KEY"]),
        [member(number, packages={"mindspore": "2.10.0"}) for number in range(2)],
    ).as_dict()
    assert plan["secret_env"] == ["WANDB_API_KEY", "MS_TLS_SERVER_PASSWORD", "MS_TLS_CLIENT_PASSWORD"]
    environments = [process["env"] for node in plan["nodes"] for process in node["processes"]]
    assert len(environments) == 3
    assert {env["MS_TLS_CONFIG"] for env in environments} == {f"{plan['job_dir']}/tls/config.json"}


def test_without_tls_there_is_nothing_of_it():
    plan = make_plan(make_job(**{**MINDSPORE, "tls": False}), [member(packages={"mindspore": "2.10.0"})]).as_dict()
    assert "MS_TLS" not in json.dumps(plan)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        (
            {"launcher": "torchrun"},
            (
                "",
                "job_tls",
                "true with job_launcher: torchrun",
                "job_launcher: mindspore or msrun, whose processes can speak TLS with each other",
                "choose one of these, or leave job_tls out",
            ),
        ),
        (
            {"packages": ["torch"]},
            (
                "",
                "job_packages",
                "['torch'] with job_tls",
                "mindspore among them: TLS is MindSpore's own",
                "add mindspore to job_packages",
            ),
        ),
        (
            {"env": {"MS_TLS_CLIENT_PASSWORD": "x"}},
            (
                "",
                "job_env",
                "MS_TLS_CLIENT_PASSWORD",
                "a secret in no plan",
                "move MS_TLS_CLIENT_PASSWORD to job_secret_env",
            ),
        ),
    ],
)
def test_variables_that_a_job_with_tls_must_not_set(changes, expected):
    assert texts(wrong(**{**MINDSPORE, **changes})) == [expected]


def test_warning_days_are_those_that_mindspore_accepts():
    for days in (6, 181):
        [(_, key, text, _, _)] = texts(wrong(**MINDSPORE, tls_warning_days=days))
        assert (key, text) == ("job_tls_warning_days", str(days))
    assert make_job(**MINDSPORE, tls_warning_days=180).tls


def test_the_configuration_is_the_launchers_own():
    assert job_file(env={"MS_TLS_CONFIG": "/x"})["job_env"]
    [(_, key, text, _, _)] = texts(wrong(env={"MS_TLS_CONFIG": "/x"}))
    assert (key, text) == ("job_env", "MS_TLS_CONFIG=/x")
