"""TLS between MindSpore's processes: in force on both sides, its secrets nowhere else, its faults explained."""

import base64
import datetime
import json
import socket
import ssl
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import pkcs12
from cryptography.x509.oid import NameOID
from lab_jobs import wait_until

JOB = Path(__file__).resolve().parents[1] / "jobs/tls.yml"
NODES = ("n1", "n2")
SECRETS = ("MS_TLS_SERVER_PASSWORD", "MS_TLS_CLIENT_PASSWORD")


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    """Folder of the authority, the same for all jobs of these tests."""
    return tmp_path_factory.mktemp("controller") / "tls_ca"


class Job:
    """A job that runs and waits, and what its nodes have of its secrets."""

    def __init__(self, run, nodes):
        self.run, self.nodes = run, nodes
        self.head = run.file("plan.json")["head"]
        self.folder = run.job_dir
        self.parts = {name: f"{run.job_dir}/hosts/{name}" for name in nodes}
        for rank, name in enumerate(NODES):
            log = f"{self.parts[name]}/logs/worker_{rank}.log"
            wait_until(lambda log=log, name=name: self._gathered(name, log), f"rank {rank} gathers")
        self.passwords = {name: self.spec("n1")["secret_env"][name] for name in SECRETS}

    def _gathered(self, name, log):
        if self.run.process.poll() is not None:
            raise AssertionError(self.run.output)
        return "gathered [[0], [1]]" in self.nodes[name].host.run(f"cat {log}").stdout

    def spec(self, name):
        return json.loads(self.nodes[name].host.check_output(f"cat {self.parts[name]}/node_plan.json"))

    def file(self, name):
        return base64.b64decode(self.nodes["n1"].host.check_output(f"base64 -w0 {self.parts['n1']}/tls/{name}"))

    def client(self, folder):
        """The client certificate with its key, readable for Python's ssl."""
        bundle = pkcs12.load_pkcs12(self.file("client.p12"), self.passwords["MS_TLS_CLIENT_PASSWORD"].encode())
        return as_pem(bundle.key, bundle.cert.certificate, folder / f"{self.run.job_id}.pem")

    def refuses(self, client=None):
        """Say how the scheduler refuses somebody with this certificate, "" when it does not.

        TLS 1.2: there, unlike in 1.3, the client's handshake ends only when the server has accepted the certificate.
        """
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.maximum_version = ssl.TLSVersion.TLSv1_2
        context.load_verify_locations(cadata=self.file("ca.pem").decode())
        if client:
            context.load_cert_chain(client)
        with socket.create_connection((self.head["address"], self.head["port"]), 30) as connection:
            try:
                context.wrap_socket(connection).close()
            except ssl.SSLError as error:
                return error.reason
        return ""

    def finish(self):
        for name in NODES:
            self.nodes[name].host.check_output(f"touch {self.folder}/source/go")
        return self.run


def as_pem(key, certificate, path):
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    path.write_bytes(private + certificate.public_bytes(serialization.Encoding.PEM))
    return path


def self_signed(name, days=1):
    """A certificate that nobody vouches for, as a stranger may have one."""
    key = rsa.generate_private_key(65537, 3072)
    now = datetime.datetime.now(datetime.timezone.utc)
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    certificate = (
        x509.CertificateBuilder(subject, subject, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=30))
        .not_valid_after(now + datetime.timedelta(days=days))
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    return key, certificate


def command_line(path):
    try:
        return path.read_bytes()
    except OSError:
        return b""  # it has ended meanwhile


@pytest.fixture(scope="module")
def ansible_log(tmp_path_factory):
    return tmp_path_factory.mktemp("log") / "ansible.log"


@pytest.fixture(scope="module")
def job(play, nodes, authority, ansible_log):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ANSIBLE_LOG_PATH", str(ansible_log))
        run = play.launch(JOB, "-vvvv", job_tls_ca_dir=str(authority), fault="late")
    return Job(run, nodes)


@pytest.fixture(scope="module")
def stolen(job, tmp_path_factory):
    """The first job's client certificate and key, in the hands of somebody else."""
    return job.client(tmp_path_factory.mktemp("stolen"))


def test_only_the_training_user_can_read_the_keys(job, nodes):
    for name in NODES:
        folder = nodes[name].host.file(f"{job.parts[name]}/tls")
        assert (folder.user, folder.mode) == ("train", 0o700)
        assert sorted(folder.listdir()) == ["ca.pem", "client.p12", "config.json", "crl.pem", "server.p12"]
        for file in folder.listdir():
            found = nodes[name].host.file(f"{job.parts[name]}/tls/{file}")
            assert (found.user, found.group, found.mode) == ("train", "train", 0o600), file
        assert job.spec(name)["secret_env"] == job.passwords
    assert len(set(job.passwords.values())) == 2


def test_who_has_no_certificate_of_the_authority_is_refused(job, stolen, tmp_path):
    assert job.refuses() != ""
    stranger = as_pem(*self_signed("stranger"), tmp_path / "stranger.pem")
    assert job.refuses(stranger) == "TLSV1_ALERT_UNKNOWN_CA"
    # So it is the certificate that makes the difference.
    assert job.refuses(stolen) == ""


def test_no_secret_is_anywhere_else(job, nodes, ansible_log):
    bundles = [base64.b64encode(job.file(f"{role}.p12")).decode() for role in ("server", "client")]
    # What runs in the lab's containers are processes of this machine, too.
    commands = b"\0".join(command_line(path) for path in Path("/proc").glob("[0-9]*/cmdline"))
    assert commands.count(b"cluster.join()") >= 3
    run = job.finish().expect(0)
    assert run.file("plan.json")["secret_env"] == list(SECRETS)
    written = {str(path): path.read_bytes() for path in run.folder.rglob("*") if path.is_file()}
    assert {"summary.json", "plan.json", "worker_0.log", "scheduler.log"} <= {Path(name).name for name in written}
    assert ansible_log.stat().st_size > 1000
    places = {**written, "output": run.output.encode(), "log": ansible_log.read_bytes(), "commands": commands}
    for name in NODES:
        places[f"journal of {name}"] = nodes[name].host.check_output("journalctl --no-pager --since=-10min").encode()
    for secret in [*job.passwords.values(), *bundles]:
        assert [place for place, text in places.items() if secret.encode() in text] == []


def test_nothing_of_it_is_left_on_the_nodes(job, nodes):
    job.finish().wait()
    for name in NODES:
        assert nodes[name].host.file(f"{job.parts[name]}/tls").listdir() == []
        assert job.spec(name)["secret_env"] == {}
        left = nodes[name].host.run(f"grep -rlF -- '{job.passwords['MS_TLS_CLIENT_PASSWORD']}' {job.folder}")
        assert left.stdout == ""


@pytest.mark.long
def test_msrun_and_a_certificate_that_was_revoked(job, stolen, play, nodes, authority, tmp_path):
    job.finish().wait()
    run = play.launch(
        JOB, job_launcher="msrun", job_name="tls-msrun", job_tls_ca_dir=str(authority), job_tls_revoked=[job.run.job_id]
    )
    second = Job(run, nodes)
    assert second.refuses(stolen) == "SSLV3_ALERT_CERTIFICATE_REVOKED"
    assert second.refuses(second.client(tmp_path)) == ""
    assert second.finish().rc == 0, run.output


@pytest.fixture(scope="module")
def refused(play, authority):
    """A worker without TLS, which the others wait for, and beside it one with a wrong password."""
    plain = play.launch(JOB, job_name="tls-plain", job_tls_ca_dir=str(authority), job_join_timeout=30, fault="plain")
    password = play.launch(JOB, job_name="tls-password", job_tls_ca_dir=str(authority), fault="password")
    return plain.wait(), password.wait()


@pytest.mark.long
def test_a_plain_worker_cannot_join(refused):
    run, _ = refused
    run.expect(2, "rank 1 never joined the cluster")
    logs = [(run.folder / f"logs/worker_{rank}.log").read_text() for rank in range(2)]
    assert "Failed to connect to the meta server" in logs[1]
    assert "gathered" not in "".join(logs)


@pytest.mark.long
def test_a_script_with_a_wrong_password_fails_with_mindspores_message(refused):
    _, run = refused
    run.expect(2, "RuntimeError: The client password is invalid!")
    meaning = "the script did not hand on the password of its client certificate, which is in MS_TLS_CLIENT_PASSWORD"
    assert f"  TLS: {meaning}" in run.lines


@pytest.mark.long
def test_given_certificates_that_do_not_fit_are_found_before_anything_starts(play, nodes, tmp_path):
    """Wrong password and expired at once; tests/unit/job/file/test_tls.py has all that can be wrong."""
    key, certificate = self_signed("site", days=-1)
    (tmp_path / "ca.pem").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    encryption = serialization.BestAvailableEncryption(b"right-4711")
    for role in ("server", "client"):
        packed = pkcs12.serialize_key_and_certificates(b"node", key, certificate, None, encryption)
        (tmp_path / f"{role}.p12").write_bytes(packed)
    files = {"ca": "ca.pem", "server": "server.p12", "client": "client.p12"}
    run = play.launch(
        JOB,
        job_name="tls-given",
        job_tls_certificates={name: str(tmp_path / file) for name, file in files.items()},
        job_secret_env={"MS_TLS_SERVER_PASSWORD": "right-4711", "MS_TLS_CLIENT_PASSWORD": "guessed-4711"},
    )
    assert run.rc == 2, run.output
    assert "2 findings: the job cannot run, and nothing was started." in run.text
    assert f"the authority {tmp_path}/ca.pem expired on " in run.text
    assert f"the server certificate {tmp_path}/server.p12 expired on " in run.text
    assert f"MS_TLS_CLIENT_PASSWORD does not open {tmp_path}/client.p12" in run.text
    assert "guessed-4711" not in run.output
    assert nodes["n1"].host.run("ls /var/lib/trainyard/jobs | grep tls-given").stdout == ""
