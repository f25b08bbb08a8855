"""A node that lies about itself to the cluster's ssh authority, and keys that were lost; with the real ssh-keygen."""

import json
import re
import subprocess
import time
from pathlib import Path

import pytest
import ssh_certificates
from ansible.module_utils.testing import patch_module_args
from ansible.module_utils.trainyard.cluster.ssh_mesh import fingerprint, parse_certificates

INVENTORY = [{"name": "n1", "ansible_host": "10.0.0.1"}, {"name": "n2", "ansible_host": "10.0.0.2"}]


def key(path):
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(path)], check=True)
    return Path(f"{path}.pub").read_text()


def node(folder, file, **says):
    """Return the answer of a node to the question ssh_keys, with keys of its own."""
    made = {"host_key": key(folder / f"{file}-host"), "user_key": key(folder / f"{file}-user")}
    return {"addresses": [], "default_address": "", "findings": [], **made, **says}


@pytest.fixture
def sign(tmp_path, capsys):
    def run(nodes, **changes):
        params = {
            "ca_dir": str(tmp_path / "ca"),
            "cluster": "lab",
            "user": "train",
            "nodes": nodes,
            "inventory": INVENTORY,
            **changes,
        }
        with patch_module_args(params), pytest.raises(SystemExit):
            ssh_certificates.main()
        return json.loads(capsys.readouterr().out)

    return run


def principals(line, folder):
    return shown(line, folder).principals


def shown(line, folder):
    (folder / "cert.pub").write_text(line)
    text = subprocess.run(
        ["ssh-keygen", "-L", "-f", str(folder / "cert.pub")],
        check=True,
        capture_output=True,
        text=True,
        env={"TZ": "UTC", "PATH": "/usr/bin:/bin"},
    ).stdout
    return parse_certificates(text)[0]


def test_nothing_that_a_node_says_of_itself_is_in_its_certificate(sign, tmp_path):
    """The names of n1, of another site, and a free address of the cluster's network, such as its gateway's."""
    claims = {"addresses": ["10.0.0.1", "10.0.0.250"], "default_address": "10.0.0.1", "hostname": "git.example.org"}
    liar = node(
        tmp_path, "n2", name="n1", connect="10.0.0.1", ansible_host="10.0.0.1", extra_principals=["n1"], **claims
    )
    told = sign({"n2": liar}, networks=["10.0.0.0/24"])
    assert list(told["certificates"]) == ["n2"]
    assert principals(told["certificates"]["n2"]["host"], tmp_path) == ("n2", "10.0.0.2")
    assert told["patterns"] == ["10.0.0.2", "n2"]
    assert [(each["host"], each["found"]) for each in told["left_out"]] == [("n2", "10.0.0.1"), ("n2", "10.0.0.250")]
    # Neither does a node that gives itself the address of its default route where the inventory has a name alone.
    named = sign({"n3": node(tmp_path, "n3", default_address="10.0.0.250")}, inventory=[{"name": "n3"}])
    assert principals(named["certificates"]["n3"]["host"], tmp_path) == ("n3",)
    assert [(each["host"], each["found"]) for each in named["left_out"]] == [("n3", "10.0.0.250")]


@pytest.mark.parametrize("bad", ["ssh-ed25519 \xe9", "ssh-ed25519 b25l", "x b25l"])
def test_a_bad_key_is_named_by_its_node_and_signs_nothing(sign, tmp_path, bad):
    """Also one that only ssh-keygen knows for bad."""
    told = sign({"n1": node(tmp_path, "n1"), "n2": node(tmp_path, "n2", host_key=bad)})
    assert told["failed"]
    assert "n2" in told["msg"]
    # A path may contain any letters.
    assert "n1" not in re.sub(r"/\S+", "", told["msg"])
    assert not (tmp_path / "ca" / "issued").exists()


def test_an_address_that_an_earlier_release_certified_is_taken_away(sign, tmp_path):
    claimed = node(tmp_path, "n2", addresses=["10.0.0.250"])
    declared = [{"name": "n2", "ansible_host": "10.0.0.2", "ssh_mesh_extra_principals": ["10.0.0.250"]}]
    before = sign({"n2": claimed}, inventory=declared, networks=["10.0.0.0/24"])
    assert (before["left_out"], before["patterns"]) == ([], ["10.0.0.2", "10.0.0.250", "n2"])
    after = sign({"n2": claimed}, networks=["10.0.0.0/24"])
    assert "n2: host key is valid for n2, 10.0.0.2, 10.0.0.250; expected n2, 10.0.0.2" in after["actions"]
    assert after["patterns"] == ["10.0.0.2", "n2"]


def test_a_stolen_user_key_opens_shells_from_the_cluster_alone_and_not_for_long(sign, tmp_path):
    """No agent, no X11, no port goes through it, and sshd refuses it from other addresses where a network is known."""
    n1 = {"n1": node(tmp_path, "n1")}
    told = sign(n1, networks=["10.0.0.7/29"], inventory=[*INVENTORY, {"name": "far", "ansible_host": "192.0.2.1"}])
    user, host = (shown(told["certificates"]["n1"][kind], tmp_path) for kind in ("user", "host"))
    assert user.options == ("permit-pty", "source-address 10.0.0.0/29,192.0.2.1/32")
    assert host.options == ()
    until = time.strftime("%Y-%m-%d", time.gmtime(user.valid_to))
    assert told["signed_text"].startswith(
        f"2 ssh certificates signed for n1, valid until {until}. To renew them, run site.yml "
    )
    assert max(user.valid_to, host.valid_to) <= time.time() + 13 * 7 * 86400
    # Without a network nobody knows from which addresses nodes come, behind NAT for one.
    told = sign(n1)
    assert shown(told["certificates"]["n1"]["user"], tmp_path).options == ("permit-pty",)
    (reason,) = told["actions"]
    assert reason.startswith(
        "n1: user key allows permit-pty, source-address 10.0.0.0/29,192.0.2.1/32; expected permit-pty"
    )
    again = sign(n1)
    assert (again["changed"], again["signed_text"]) == (False, "")


def test_a_lost_key_of_a_node_that_stays_is_revoked_and_its_new_one_signed(sign, tmp_path):
    before = node(tmp_path, "n1")
    sign({"n1": before})
    lost = fingerprint(before["user_key"])
    assert [each["check"] for each in sign({"n1": before}, revoked=[lost])["findings"]] == ["user key"]
    after = {**before, "user_key": key(tmp_path / "new")}
    told = sign({"n1": after}, revoked=[lost])
    assert f"n1: {lost} revoked" in told["actions"]
    assert principals(told["certificates"]["n1"]["user"], tmp_path) == ("train",)
    for name, status in (("n1-user", 1), ("new", 0), ("n1-host", 0)):
        argv = ["ssh-keygen", "-Q", "-f", told["revocation_list"], str(tmp_path / f"{name}.pub")]
        assert subprocess.run(argv, check=False, capture_output=True).returncode == status
    # For good, also when it is no longer listed; and a second run changes nothing.
    assert sign({"n1": after}, revoked=[lost])["changed"] is False
    assert [each["check"] for each in sign({"n1": before})["findings"]] == ["user key"]
