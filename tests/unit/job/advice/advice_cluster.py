"""The ssh mesh of a cluster: what site.yml finds in its way, and what readers do for each part of the advice."""

from __future__ import annotations

import os
import pwd
from unittest import mock

from advice_rules import Rule, put
from ansible.module_utils.trainyard.cluster import ssh_mesh, ssh_names
from ansible.module_utils.trainyard_node.cluster import ssh_keys
from ansible.module_utils.trainyard_node.machine.tree import Tree
from test_ssh_mesh import KEY, mesh_node
from test_sshd_settings import HEALTHY

ME = pwd.getpwuid(os.getuid()).pw_name
HOST_KEY = "/etc/ssh/ssh_host_ed25519_key"
OTHER_KEY = KEY.replace(KEY[-4:], "AAAA")
FILES = {
    **{f"/etc/ssh/{name}_config": f"Include /etc/ssh/{name}_config.d/*.conf\n" for name in ("ssh", "sshd")},
    **{HOST_KEY: "private\n", f"{HOST_KEY}.pub": f"{KEY}\n"},
    "/commands/sshd-T.out": HEALTHY,
}


class Node:
    """A node before the mesh: its files, the output of sshd -T among them, and the variables of the role."""

    def __init__(self, old="", new="", **changes):
        sshd = {"/commands/sshd-T.out": HEALTHY.replace(old, new) if old else HEALTHY + new}
        self.given = {"files": {**FILES, **sshd}, "uid": 0, "user": ME, "host_key": HOST_KEY, "is_run": True}
        put(**changes)(self)

    def launch(self, folder):
        """Return the findings of the node."""
        for path, text in self.given["files"].items():
            (folder / path[1:]).parent.mkdir(parents=True, exist_ok=True)
            (folder / path[1:]).write_text(text)
        given = (self.given["user"], self.given["host_key"], "/etc/trainyard/ssh")
        with mock.patch("os.geteuid", return_value=self.given["uid"]):
            return ssh_keys.node_findings(Tree(str(folder)), "n1", *given) if self.given["is_run"] else []


def without(*paths):
    return {path: text for path, text in FILES.items() if path not in paths}


def files(**changes):
    """Return the change of files, `sshd` being the output of sshd -T."""
    return lambda node: node.given["files"].update({"/commands/sshd-T.out": changes["sshd"]})


def more(path, text):
    return lambda node: node.given["files"].update({path: text})


def generated(node):
    """Write the public half of a private key, which has to be there."""
    assert HOST_KEY in node.given["files"]
    more(f"{HOST_KEY}.pub", KEY)(node)


def refused(old, new, part, setting):
    """Return a case of settings of sshd that the mesh cannot work with, and those that the advice asks for."""
    return lambda _: (Node(old, new), {part: files(sshd=HEALTHY.replace(old, setting) if old else HEALTHY + setting)})


RSA = "hostkey /etc/ssh/ssh_host_rsa_key\n"
ED25519 = f"hostkey {HOST_KEY}\n"
USER = "choose a training user who does not use it"
SSHD_CASES = {
    "a host key that sshd does not use": lambda _: (
        Node(ED25519, ""),
        {
            "set ssh_mesh_host_key to one of the host keys in use": lambda node: (
                put(host_key="/etc/ssh/ssh_host_rsa_key")(node),
                more("/etc/ssh/ssh_host_rsa_key.pub", KEY)(node),
            ),
            "let sshd use this one (ssh-keygen -A)": files(sshd=HEALTHY),
        },
    ),
    "no host key": refused(RSA + ED25519, "", "let sshd use this one (ssh-keygen -A)", ED25519),
    "an authority of the site": refused(
        "trustedusercakeys none", "trustedusercakeys /ca", USER, "trustedusercakeys none"
    ),
    "a host certificate of the site": refused(
        "", "hostcertificate /etc/ssh/site-cert.pub\n", "take HostCertificate out of sshd_config", ""
    ),
    "another kind of signature": refused("ssh-ed25519,rsa", "rsa", "allow it in sshd_config", "ssh-ed25519,rsa"),
    "no login by key": refused(
        "pubkeyauthentication yes",
        "pubkeyauthentication no",
        "allow it, at least for this user (Match User)",
        "pubkeyauthentication yes",
    ),
    "a user who is not allowed": refused(
        "", "allowusers ops\n", f"add {ME} to AllowUsers in sshd_config", f"allowusers ops {ME}\n"
    ),
    "a user who is denied": refused(
        "", f"denyusers ops {ME[:2]}*\n", f"take {ME[:2]}* out of DenyUsers in sshd_config", "denyusers ops\n"
    ),
}
INCLUDE = "write it on the first line of /etc/ssh/sshd_config (OpenSSH 8.2 or newer)"
NODE_CASES = {
    "a mesh without root": lambda _: (
        Node(uid=1000),
        {
            "set trainyard_become=true": put(uid=0),
            "do not run ssh_mesh (trainyard_manage_system=false)": put(is_run=False),
        },
    ),
    "a mesh without its user": lambda _: (
        Node(user="no-such-user"),
        {"run the role node_baseline first": put(user=ME), "correct trainyard_user": put(user=ME)},
    ),
    "an sshd without a folder": lambda _: (
        Node(files=without("/etc/ssh/sshd_config")),
        {INCLUDE: more("/etc/ssh/sshd_config", FILES["/etc/ssh/sshd_config"])},
    ),
    "no sshd": lambda _: (
        Node(files=without("/commands/sshd-T.out")),
        {"install or repair the OpenSSH server (role node_baseline installs it)": files(sshd=HEALTHY)},
    ),
    "no public half of a host key": lambda _: (
        Node(files=without(f"{HOST_KEY}.pub")),
        {f"ssh-keygen -y -f {HOST_KEY} > {HOST_KEY}.pub": generated},
    ),
    "no half of a host key": lambda _: (
        Node(files=without(HOST_KEY, f"{HOST_KEY}.pub")),
        {f"ssh-keygen -q -t ed25519 -N '' -f {HOST_KEY}": lambda node: node.given["files"].update(FILES)},
    ),
}


# ---- all nodes together


def mesh(*requests, **given):
    """Return the requests of nodes for certificates, and the lists of keys."""
    nodes = {"nodes": [mesh_node("n1"), mesh_node("n2")], "requests": [*requests], "revoked": {}, "to_revoke": []}
    return Rule(lambda given: ssh_mesh.mesh_findings(**given), {**nodes, "certified": {}, **given})


def ask(node, key=KEY, *principals):
    return ssh_mesh.Request(node, "host", key, (node, *principals))


def requests(*new):
    return put(requests=[*new])


AGAIN = "remove the key on the node and generate it again (ssh-keygen -A for host keys)"
LOST = "SHA256:lost"
NAMED = ("correct the host's name", "ansible_host", "ssh_mesh_extra_principals in the inventory")
MESH_CASES = {
    "a key that is none": lambda _: (mesh(ask("n1", "no key")), {AGAIN: requests(ask("n1"))}),
    "a name that no certificate may have": lambda _: (
        mesh(ask("n1", KEY, "n1,root")),
        dict.fromkeys(NAMED, requests(ask("n1"))),
    ),
    "a key of two nodes": lambda _: (
        mesh(ask("n1"), ask("n2")),
        {f"on all but one: {AGAIN}": requests(ask("n1"), ask("n2", OTHER_KEY))},
    ),
    "a revoked key": lambda _: (
        mesh(ask("n1"), revoked={ssh_mesh.fingerprint(KEY): "n7"}),
        {AGAIN: requests(ask("n1", OTHER_KEY))},
    ),
    "a revoked node that stays": lambda _: (
        mesh(ask("n1"), to_revoke=["n2"], certified={LOST: "n2"}),
        {
            "take the node out of the inventory": put(nodes=[mesh_node("n1")]),
            "its name out of ssh_mesh_revoked": put(to_revoke=[]),
            "to revoke a lost key of a node that stays, list the fingerprint of the key": put(to_revoke=[LOST]),
        },
    ),
    "a revoked node that nobody knows": lambda _: (
        mesh(ask("n1"), to_revoke=["n9"], certified={LOST: "n7"}),
        {"correct it": put(to_revoke=["n7"]), "ssh_mesh_ca_dir": put(certified={LOST: "n9"})},
    ),
    "an address without a name": lambda _: (
        addressed("10.0.0.1"),
        {
            "if it is right, add it to ssh_mesh_extra_principals of the node": put(
                inventory=[named("10.0.0.1", "10.0.0.7")]
            )
        },
    ),
    "a node without an address": lambda _: (
        addressed(),
        {
            "if it is right, add it to ssh_mesh_extra_principals of the node": put(inventory=[named("", "10.0.0.1")]),
            "set it as ansible_host": put(inventory=[named("10.0.0.1")]),
        },
    ),
}


def named(address="", *principals):
    return {"name": "n1", "ansible_host": address, "ssh_mesh_extra_principals": [*principals]}


def addressed(address=""):
    """Return a node with its names in the inventory; with an address, it has two on the network of the cluster."""
    node = mesh_node("n1", addresses=["10.0.0.1", "10.0.0.7"] if address else ["10.0.0.1"])

    def found(given):
        names = ssh_names.declared_names(given["inventory"])
        return ssh_names.undeclared_addresses([node], ["10.0.0.0/24"] if address else [], names)

    return Rule(found, {"inventory": [named(address)]})


CASES = {**SSHD_CASES, **NODE_CASES, **MESH_CASES}
