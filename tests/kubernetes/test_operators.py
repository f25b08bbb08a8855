"""The life of the resources of operators, against the fake: no operator makes pods of them here."""

import base64
import json

from ansible.module_utils.trainyard.job.file import mindspore_tls
from cryptography.hazmat.primitives.serialization import pkcs12

NAMES = ["ca.pem", "client.p12", "config.json", "crl.pem", "server.p12"]


def test_a_resource_of_an_operator_is_applied_watched_logged_and_removed(fake):
    fake.api.course = "operated"
    run = fake.launch(job_launcher="mpirun", job_source="").expect(0)
    assert (run.summary["state"], run.summary["metrics"]["step"]) == ("succeeded", 3)
    assert "step 3/3" in (run.folder / "logs" / "launcher.log").read_text()
    assert fake.play("playbooks/stop.yml", job_name="digits").rc == 0
    assert fake.api.objects == {}


def test_an_msjob_with_job_tls_has_its_own_secret_and_says_what_was_started_again(fake):
    fake.api.course = "restarts"
    run = fake.launch(
        "-v",
        "--diff",
        job_launcher="mindspore",
        job_packages=["mindspore"],
        job_max_restarts=1,
        job_tls=True,
        job_tls_ca_dir=str(fake.folder / "authority"),
        job_secret_env={"TOKEN": "a-secret-value"},
    ).expect(0)
    made = {
        given["metadata"]["name"]: given
        for command, path, given in fake.api.requests
        if command == "POST" and path.endswith("/secrets")
    }
    name = run.folder.name
    assert sorted(made) == [f"{name}-env", f"{name}-tls"]

    # What MindSpore reads: the files are where config.json says, and open with the passwords.
    files = {key: base64.b64decode(value) for key, value in made[f"{name}-tls"]["data"].items()}
    assert sorted(files) == NAMES
    config = json.loads(files["config.json"])
    assert config["server_cert_path"] == "/trainyard/tls/server.p12"
    assert config["crl_path"] == "/trainyard/tls/crl.pem"
    passwords = made[f"{name}-env"]["stringData"]
    assert sorted(passwords) == sorted(["TOKEN", *mindspore_tls.PASSWORD_VARIABLES.values()])
    for role, variable in mindspore_tls.PASSWORD_VARIABLES.items():
        bundle = pkcs12.load_pkcs12(files[f"{role}.p12"], passwords[variable].encode())
        assert name in bundle.cert.certificate.subject.rfc4514_string()
    encoded = [base64.b64encode(secret.encode()).decode() for secret in passwords.values()]
    bundles = [made[f"{name}-tls"]["data"][key] for key in ("client.p12", "server.p12")]
    for secret in [*passwords.values(), *encoded, *bundles]:
        assert secret not in run.output
        assert not [path for path in fake.runs.rglob("*") if path.is_file() and secret.encode() in path.read_bytes()]
    assert fake.api.made("secrets") == [], "a job that has ended needs none"
    assert fake.api.made("configmaps")

    [restart] = run.summary["restarts"]
    assert restart["reason"] == f"rank 0 on {name}-worker-0: killed by SIGKILL, out of memory"
    # Once when it happened, and once in the report.
    assert run.output.count("out of memory, so rank 0 starts again") == 2
    assert "started again 1 of at most 1 time" in run.text


def test_certificates_that_cannot_be_made_are_a_finding_and_nothing_is_applied(fake):
    folder = fake.folder / "authority"
    folder.mkdir()
    (folder / "ca.pem").write_text("no certificate")
    fake.launch(
        job_launcher="mindspore",
        job_packages=["mindspore"],
        job_tls=True,
        job_tls_ca_dir=str(folder),
        job_network="eth1",
    ).fails("2 findings: the job cannot run, and nothing was started.", "the folder of the jobs' authority")
    assert fake.api.objects == {}
