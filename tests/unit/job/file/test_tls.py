"""TLS of MindSpore jobs: the authority that makes certificates, and given ones."""

import base64
import concurrent.futures
import itertools
import json
import shutil
import subprocess
import threading
import time

import job_tls
import pytest
from ansible.module_utils.testing import patch_module_args
from ansible.module_utils.trainyard.job.file import mindspore_tls
from ansible.module_utils.trainyard_controller.cluster import tls_authority
from ansible.module_utils.trainyard_controller.job import job_certificates
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import pkcs12
from tls_site import PASSWORDS, Site

DAY = mindspore_tls.DAY_S
JOB = "digits-20261120-101500"


@pytest.fixture(scope="session")
def keys():
    return itertools.cycle([rsa.generate_private_key(65537, 3072) for _ in range(8)])


@pytest.fixture(autouse=True)
def keys_made_before(monkeypatch, keys):
    """Take turns with a few keys of the usual size: to make one takes a good part of a second."""
    make = rsa.generate_private_key
    monkeypatch.setattr(rsa, "generate_private_key", lambda e, size: next(keys) if size == 3072 else make(e, size))


def params_of(folder, **changes):
    base = {"cluster": "lab", "ca_dir": str(folder), "job_id": JOB, "valid_s": 3600, "warning_days": 30, "revoked": []}
    return {**base, "server_password": "", "client_password": "", **changes}


@pytest.fixture
def call(capsys, tmp_path):
    """Run the module for a job of this cluster."""

    def run(_check=False, **changes):
        params = (
            params_of(tmp_path / "tls_ca", job_dir=f"/state/jobs/{JOB}", **{"_ansible_check_mode": _check}) | changes
        )
        with patch_module_args(params), pytest.raises(SystemExit):
            job_tls.main()
        return json.loads(capsys.readouterr().out)

    return run


def found(result):
    return [(finding["check"], finding["found"]) for finding in result["findings"]]


def content(result, name):
    return base64.b64decode(result["files"][name])


def client_certificate(result):
    bundle = pkcs12.load_pkcs12(content(result, "tls/client.p12"), result["env"]["MS_TLS_CLIENT_PASSWORD"].encode())
    return bundle.cert.certificate.public_bytes(serialization.Encoding.PEM)


# ---- certificates made for a job


def test_a_job_gets_certificates_that_mindspore_can_use(call, tmp_path):
    """Its rules: one certificate in each p12, key identifiers that match, the authority's own list, 3072 bits."""
    before = int(time.time())
    made = call()
    after = time.time()
    assert (made["changed"], made["findings"], made["soon"]) == (True, [], [])
    assert set(made["env"]) == {"MS_TLS_SERVER_PASSWORD", "MS_TLS_CLIENT_PASSWORD"}
    assert len(set(made["env"].values())) == 2 and min(map(len, made["env"].values())) >= 32
    authority = x509.load_pem_x509_certificate(content(made, "tls/ca.pem"))
    own = authority.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value.digest
    for role, variable in mindspore_tls.PASSWORD_VARIABLES.items():
        bundle = pkcs12.load_pkcs12(content(made, f"tls/{role}.p12"), made["env"][variable].encode())
        certificate = bundle.cert.certificate
        assert bundle.additional_certs == []
        certificate.verify_directly_issued_by(authority)
        extensions = certificate.extensions
        keyid = extensions.get_extension_for_class(x509.AuthorityKeyIdentifier).value
        assert (keyid.key_identifier, keyid.authority_cert_issuer) == (own, None)
        assert extensions.get_extension_for_class(x509.SubjectKeyIdentifier)
        assert certificate.public_key().key_size == 3072
        # As long as the job may take, and the week before the end of which MindSpore warns at the latest.
        ends = certificate.not_valid_after_utc.timestamp()
        assert before + 3600 + 8 * DAY <= ends <= after + 3600 + 8 * DAY
    for name in ("ca.pem", "crl.pem"):
        (tmp_path / name).write_bytes(content(made, f"tls/{name}"))
    (tmp_path / "leaf.pem").write_bytes(client_certificate(made))
    assert openssl_verify(tmp_path, "leaf.pem") == "leaf.pem: OK"
    files = {"server_cert_path": "server.p12", "client_cert_path": "client.p12", "ca_cert_path": "ca.pem"}
    assert json.loads(content(made, "tls/config.json")) == {
        **{key: f"/state/jobs/{JOB}/tls/{name}" for key, name in {**files, "crl_path": "crl.pem"}.items()},
        "cipher_list": ":".join(mindspore_tls.DEFAULT_CIPHERS),
        "cert_expire_warning_time_in_day": 7,
    }


def openssl_verify(folder, name):
    """Verify as MindSpore's OpenSSL does, at its security level and with the revocation list."""
    argv = ["openssl", "verify", "-auth_level", "3", "-crl_check", "-CRLfile", "crl.pem", "-CAfile", "ca.pem", name]
    done = subprocess.run(argv, cwd=folder, capture_output=True, text=True, timeout=240)
    return (done.stdout + done.stderr).strip()


def test_the_authority_is_made_once_and_for_its_owner_only(call, tmp_path):
    first, second = call(), call(job_id="digits-20261120-111500")
    assert first["files"]["tls/ca.pem"] == second["files"]["tls/ca.pem"]
    assert first["files"]["tls/client.p12"] != second["files"]["tls/client.p12"]
    assert not set(first["env"].values()) & set(second["env"].values())
    folder = tmp_path / "tls_ca"
    assert folder.stat().st_mode & 0o777 == 0o700
    modes = {path.name: path.stat().st_mode & 0o777 for path in folder.iterdir() if path.name != ".lock"}
    assert modes == dict.fromkeys(("ca.key", "ca.pem", "issued", "revoked"), 0o600)


def test_two_first_launches_at_once_have_one_authority(tmp_path, monkeypatch):
    """The launch that waits for the other must not make a second authority."""
    met, unknown = threading.Barrier(2), tls_authority.Authority.unknown
    monkeypatch.setattr(tls_authority.Authority, "unknown", lambda self, jobs: (met.wait(240), unknown(self, jobs))[1])

    def launch(job):
        result, params = {"env": {}, "files": {}}, params_of(tmp_path / "tls_ca", job_id=job)
        return job_certificates.make(params, False, result), result["files"][mindspore_tls.AUTHORITY]

    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        (found, one), (also, other) = pool.map(launch, ["a-20261120-101500", "b-20261120-101500"])
    assert found == also == []
    assert one == other == (tmp_path / "tls_ca/ca.pem").read_bytes()
    assert len((tmp_path / "tls_ca/issued").read_text().splitlines()) == 4


def test_an_authority_without_certificate_is_completed(call, tmp_path):
    first, folder = call(), tmp_path / "tls_ca"
    key = (folder / "ca.key").read_bytes()
    (folder / "ca.pem").unlink()
    (folder / "ca.key.new").write_bytes(b"half")
    second = call(job_id="digits-20261120-111500")
    assert second["findings"] == []
    assert (folder / "ca.key").read_bytes() == key
    old, new = (x509.load_pem_x509_certificate(content(made, "tls/ca.pem")) for made in (first, second))
    assert old.public_key() == new.public_key()
    assert call(job_id="digits-20261120-121500")["files"]["tls/ca.pem"] == second["files"]["tls/ca.pem"]


def test_halves_of_two_authorities_sign_nothing(call, tmp_path):
    call()
    call(ca_dir=str(tmp_path / "other"))
    (tmp_path / "other/ca.key").replace(tmp_path / "tls_ca/ca.key")
    result = call()
    assert "is not the key of" in found(result)[0][1] and result["files"] == {}


def test_check_mode_makes_nothing(call, tmp_path):
    result = call(True, job_id="", job_dir="")
    assert (result["changed"], result["findings"], result["env"], result["files"]) == (False, [], {}, {})
    assert not (tmp_path / "tls_ca").exists()


def test_passwords_that_are_given_are_used_and_not_returned(call):
    made = call(**PASSWORDS)
    assert made["env"] == {}
    for role in ("server", "client"):
        assert pkcs12.load_pkcs12(content(made, f"tls/{role}.p12"), PASSWORDS[f"{role}_password"].encode()).key
    shown = {key: value for key, value in made.items() if key != "invocation"}
    assert not [password for password in PASSWORDS.values() if password in json.dumps(shown)]


def test_revoking_a_job_revokes_its_certificates_for_good(call, tmp_path):
    lost, other = call(), call(job_id="other-20261120-101500")
    for name, job in (("lost", lost), ("other", other)):
        (tmp_path / f"{name}.pem").write_bytes(client_certificate(job))
    (tmp_path / "ca.pem").write_bytes(content(lost, "tls/ca.pem"))
    for revoked in ([JOB], []):
        later = call(job_id="later-20261120-101500", revoked=revoked)
        (tmp_path / "crl.pem").write_bytes(content(later, "tls/crl.pem"))
        assert "certificate revoked" in openssl_verify(tmp_path, "lost.pem")
        assert openssl_verify(tmp_path, "other.pem") == "other.pem: OK"
        assert len(x509.load_pem_x509_crl(content(later, "tls/crl.pem"))) == 2


def test_revoking_an_unknown_job_is_a_finding(call):
    call()
    for check in (True, False):
        [(name, text)] = found(call(check, revoked=[JOB, "digist-20261120-101500"]))
        assert name == "job_tls_revoked" and text.startswith("digist-20261120-101500, which has no valid")


@pytest.mark.parametrize(("left_days", "state"), [(-0.01, "expired"), (20, "soon"), (100, "")])
def test_an_authority_that_expires(call, tmp_path, monkeypatch, left_days, state):
    monkeypatch.setattr(tls_authority, "AUTHORITY_DAYS", left_days)
    # The first call makes the authority and does not check it.
    call()
    path, result = tmp_path / "tls_ca", call(True)
    end = x509.load_pem_x509_certificate((path / "ca.pem").read_bytes()).not_valid_after_utc.timestamp()
    expired = f"the jobs' authority {path}/ca.pem expired on {mindspore_tls.day(end)}"
    assert found(result) == ([("tls", expired)] if state == "expired" else [])
    soon = f"the jobs' authority {path}/ca.pem expires on {mindspore_tls.day(end)}, 19 days from now"
    assert [text.partition(". ")[0] for text in result["soon"]] == ([soon] if state == "soon" else [])
    if state == "expired":
        assert call()["files"] == {}
        shutil.rmtree(path)
        monkeypatch.setattr(tls_authority, "AUTHORITY_DAYS", 100)
        assert call()["findings"] == []


def test_a_key_that_others_can_read_is_not_used(call, tmp_path):
    call()
    key = tmp_path / "tls_ca" / "ca.key"
    key.chmod(0o640)
    result = call()
    assert result["files"] == {}
    [(_, text)] = found(result)
    readable = f"{key} can be read by others (mode 640); expected 600."
    assert text.startswith(f"{tmp_path}/tls_ca on the controller: {readable}")


# ---- given certificates


@pytest.fixture(scope="module")
def made_site(tmp_path_factory):
    return Site(tmp_path_factory.mktemp("site"))


@pytest.fixture
def site(made_site, tmp_path, monkeypatch):
    """Return the site with its files in a folder of the test."""
    shutil.copytree(made_site.folder, tmp_path / "site")
    monkeypatch.setattr(made_site, "folder", tmp_path / "site")
    return made_site


@pytest.fixture
def hand_in(call, site):
    files = {"ca": "site/ca.pem", "crl": "site/crl.pem", "server": "site/server.p12", "client": "site/client.p12"}

    def run(**changes):
        base = {"certificates": files, "base_dir": str(site.folder.parent), **PASSWORDS}
        return call(True, **{**base, **changes})

    return run


def test_good_certificates_are_handed_on(hand_in, site, tmp_path):
    result = hand_in()
    assert (result["changed"], result["findings"], result["soon"], result["env"]) == (False, [], [], {})
    for name in ("ca.pem", "crl.pem", "server.p12", "client.p12"):
        assert content(result, f"tls/{name}") == (site.folder / name).read_bytes()
    assert json.loads(content(result, "tls/config.json"))["crl_path"] == f"/state/jobs/{JOB}/tls/crl.pem"
    assert not (tmp_path / "tls_ca").exists()


@pytest.mark.parametrize("curve", [ec.SECP256R1, ec.SECP384R1])
def test_keys_on_a_curve_are_taken_as_mindspore_2_10_took_them(hand_in, site, curve, tmp_path):
    for role in ("server", "client"):
        site.bundle(role, key=ec.generate_private_key(curve()))
    result = hand_in()
    assert result["findings"] == [] and "tls/server.p12" in result["files"]


def test_ciphers_are_the_requested_ones_or_those_that_mindspore_knows(call):
    # By OpenSSL all of them are ciphers, and none is one that needs a key both sides have.
    known = subprocess.run(
        ["openssl", "ciphers", ":".join(mindspore_tls.CIPHERS)], capture_output=True, text=True, check=True
    )
    assert set(mindspore_tls.CIPHERS) <= set(known.stdout.strip().split(":"))
    assert len(mindspore_tls.CIPHERS) == 9 and set(mindspore_tls.CIPHERS) - set(mindspore_tls.DEFAULT_CIPHERS) == {
        "ECDHE-PSK-CHACHA20-POLY1305"
    }
    made = call(ciphers=["ECDHE-ECDSA-AES256-CCM"])
    assert json.loads(content(made, "tls/config.json"))["cipher_list"] == "ECDHE-ECDSA-AES256-CCM"
    (finding,) = mindspore_tls.cipher_findings(["DHE-RSA-AES128-GCM-SHA256", "ECDHE-RSA-AES128-GCM-SHA256"])
    assert (finding.check, finding.found) == ("job_tls_ciphers", "DHE-RSA-AES128-GCM-SHA256")
    assert (
        mindspore_tls.cipher_findings([])[0].found == "no cipher"
        and mindspore_tls.cipher_findings(mindspore_tls.DEFAULT_CIPHERS) == []
    )


def test_a_revocation_list_may_be_left_out(hand_in):
    result = hand_in(certificates={"ca": "site/ca.pem", "server": "site/server.p12", "client": "site/client.p12"})
    assert (result["findings"], "tls/crl.pem" in result["files"]) == ([], False)
    assert json.loads(content(result, "tls/config.json"))["crl_path"] == ""


def test_a_certificate_that_expires_soon_is_a_warning(hand_in, site):
    site.bundle("client", days=10)
    result = hand_in()
    assert result["findings"] == []
    [text] = result["soon"]
    assert text.startswith(f"the client certificate {site.folder}/client.p12 expires on ") and ", 9 days from" in text


FOREIGN = ec.generate_private_key(ec.SECP256R1())
SHORT = rsa.generate_private_key(65537, 2048)
OLD_CURVE = ec.generate_private_key(ec.SECP192R1())


@pytest.mark.parametrize(
    ("role", "changes", "text"),
    [
        ("client", {"days": -0.5}, "the client certificate DIR/client.p12 expired on "),
        ("server", {"since": -1}, "the server certificate DIR/server.p12 is valid from "),
        ("server", {"chain": True}, "the server certificate DIR/server.p12 comes with 1 other certificates"),
        ("client", {"key": SHORT}, "the client certificate DIR/client.p12 has 2048 bits"),
        ("client", {"key": OLD_CURVE}, "the client certificate DIR/client.p12 has 192 bits"),
        ("client", {"signer": FOREIGN}, "the client certificate DIR/client.p12 is not signed by the authority DIR/ca"),
        ("client", {"keyid": False}, "the client certificate DIR/client.p12 has no authorityKeyIdentifier"),
        ("revoked", {}, "the server certificate DIR/server.p12 is revoked by the revocation list DIR/crl.pem"),
        ("list", {"days": -1}, "the revocation list DIR/crl.pem was due to be replaced on "),
        ("list", {"signer": FOREIGN}, "the revocation list DIR/crl.pem is not signed by the authority DIR/ca.pem"),
        ("no p12", {}, "MS_TLS_SERVER_PASSWORD does not open DIR/server.p12"),
    ],
)
def test_certificates_that_mindspore_cannot_use_are_findings(hand_in, site, role, changes, text):
    if role in ("client", "server"):
        site.bundle(role, **changes)
    elif role == "no p12":
        (site.folder / "server.p12").write_text("nothing")
    else:
        site.revoke(*([site.serials["server"]] if role == "revoked" else []), **changes)
    result = hand_in()
    [(check, shown)] = found(result)
    assert check == "tls" and shown.startswith(text.replace("DIR", str(site.folder)))
    assert result["files"] == {}


def test_a_wrong_password_and_none(hand_in, site):
    result = hand_in(**{**PASSWORDS, "client_password": "guessed-4713", "server_password": ""})
    assert found(result) == [
        ("job_secret_env", "no MS_TLS_SERVER_PASSWORD"),
        ("tls", f"MS_TLS_CLIENT_PASSWORD does not open {site.folder}/client.p12"),
    ]


def test_files_that_are_missing_unknown_or_not_there(hand_in, site):
    assert [text for _, text in found(hand_in(certificates={"ca": "a", "serve": "b"}, revoked=["x"]))] == [
        "no server",
        "no client",
        "a file named serve",
        "together with job_tls_certificates",
    ]
    (site.folder / "ca.pem").unlink()
    [(check, text)] = found(hand_in())
    assert (check, text.partition(":")[0]) == ("job_tls_certificates", f"{site.folder}/ca.pem")
