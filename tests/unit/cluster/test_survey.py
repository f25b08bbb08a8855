"""Findings of the first probe of every host."""

import pytest
from ansible.module_utils.trainyard.base.findings import render
from ansible.module_utils.trainyard.cluster.survey import (
    Survey,
    describe_nodes,
    login_findings,
    read_probe,
    survey_findings,
)

FREE = {"/opt/trainyard": 5.0}


def record(name, become=None, **facts):
    values = {"hostname": name, "os_id": "debian", "os_version": "12", "python": "3.11.2"}
    values = {**values, "free:/opt/trainyard": str(6 * 1024 * 1024), **facts}
    stdout = "".join(f"trainyard:{key}={value}\r\n" for key, value in values.items())
    probe = {"rc": 0, "stdout": "Welcome!\n" + stdout}
    return {
        "name": name,
        "connect": f"10.0.0.{name[1:]}",
        "probe": probe,
        "become": become or {"rc": 0, "stdout": "0\n"},
    }


def findings_of(*records, check_system=True):
    return survey_findings([Survey.from_dict(entry) for entry in records], FREE, check_system)


def test_healthy_hosts_have_no_finding_and_are_described():
    nodes = [record("n1"), record("n2", os_id="ubuntu", os_version="24.04", python="3.12.3")]
    assert findings_of(*nodes) == []
    text = describe_nodes([Survey.from_dict(node) for node in nodes])
    assert text == "2 nodes: debian 12, ubuntu 24.04; Python 3.11.2, 3.12.3; at least 6 GiB free"


@pytest.mark.parametrize(
    ("facts", "check", "found"),
    [
        ({"os_id": "alpine", "os_version": "3.20"}, "operating system", "alpine 3.20"),
        ({"os_id": "debian", "os_version": "9"}, "operating system", "debian 9"),
        ({"python": "3.8.10"}, "Python", "Python 3.8.10"),
        ({"python": ""}, "Python", "no working Python"),
        ({"free:/opt/trainyard": "1048576"}, "space for /opt/trainyard", "1.0 GiB free"),
        ({"free:/opt/trainyard": ""}, "space for /opt/trainyard", "free space unknown"),
    ],
)
def test_an_unsuitable_host_is_a_finding(facts, check, found):
    (finding,) = findings_of(record("n1"), record("n2", **facts))
    assert (finding.host, finding.check, finding.found) == ("n2", check, found)


def test_an_old_system_has_an_action():
    bionic = {"os_id": "ubuntu", "os_version": "18.04", "python": "3.6.9"}
    system, python = findings_of(record("n1", **bionic))
    assert system.found == "ubuntu 18.04, whose own Python is 3.6"
    for way in ("upgrade the node", "ansible_python_interpreter", "trainyard_manage_system: false"):
        assert way in system.action
    assert (python.found, python.expected) == ("Python 3.6.9", "Python 3.9 or newer")
    assert "ansible_python_interpreter" in python.action
    # The advice works.
    assert findings_of(record("n1", **{**bionic, "python": "3.11.9"}), check_system=False) == []


FAILED = {"rc": 1, "msg": "non-zero return code", "stdout": ""}


@pytest.mark.parametrize(
    ("become", "found"),
    [
        ({**FAILED, "stderr": "sudo: a password is required\n"}, "sudo requires a password"),
        ({**FAILED, "stdout": "No root.\n"}, "No root. (exit status 1)"),
        ({"rc": 0, "stdout": "1000\n"}, "became uid 1000"),
    ],
)
def test_missing_privileges_are_a_finding(become, found):
    (finding,) = findings_of(record("n1", become=become))
    assert (finding.check, finding.found) == ("become", found)


def test_privileges_that_are_not_requested_are_not_checked():
    assert findings_of(record("n1", become={"skipped": True, "skip_reason": "Conditional result was False"})) == []


def test_an_unreachable_host_is_one_finding_and_others_are_checked():
    probe = {"unreachable": True, "msg": "Task failed: Failed to connect to the host via ssh: timed out"}
    silent = {"name": "n2", "connect": "10.0.0.2", "probe": probe}
    findings = findings_of(record("n1", python="3.8.0"), silent)
    assert [(finding.host, finding.check) for finding in findings] == [("n2", "reach"), ("n1", "Python")]
    assert findings[0].found == "timed out" and findings[0].expected.endswith("at 10.0.0.2")


def test_a_login_that_prints_a_brace_is_a_finding():
    def printed(line):
        node = record("n1")
        return findings_of({**node, "probe": {"rc": 0, "stdout": f"{line}\n{node['probe']['stdout']}"}})

    (finding,) = printed("{maintenance: tonight}")
    assert (finding.check, finding.found) == ("login", "it prints before the answer: {maintenance: tonight}")
    assert printed("[site] Authorised use only") == []


def test_duplicate_names_and_addresses_name_all_hosts():
    twin = {**record("n2", hostname="N1.example.org"), "connect": "10.0.0.1"}
    findings = findings_of(record("n1"), twin, record("n3"))
    assert [(finding.host, finding.check, finding.found) for finding in findings] == [
        ("n2", "host name", "n1 on n1, n2"),
        ("n1", "inventory", "10.0.0.1 on n1, n2"),
        ("n2", "inventory", "10.0.0.1 on n1, n2"),
    ]


def test_only_the_probes_own_lines_are_parsed():
    assert read_probe("motd: x=y\n trainyard:free:/a=1=2\nhostname=evil\n") == {"free:/a": "1=2"}


@pytest.mark.parametrize("reachable", [True, False])
def test_a_thousand_hosts_with_one_problem_are_one_block(reachable):
    nodes = []
    for number in range(1000):
        address = f"10.2.{number // 250}.{number % 250}"
        node = {**record(f"gpu{number:04d}", hostname="image", python="3.8.1"), "connect": address}
        if not reachable:
            message = f"ssh: connect to host {address} port 22: Connection timed out"
            node["probe"] = {"unreachable": True, "msg": message}
        nodes.append(node)
    text = render(findings_of(*nodes), "{count} {findings}:")
    assert len(text.splitlines()) == (11 if reachable else 6) and len(text) < 700, text


STATE = "/var/tmp/trainyard-ann"  # noqa: S108
ROOT = "/nfs/ann/.local/share/trainyard"


def login(name, become=None, **facts):
    usual = {"user": "ann", "uid": "1201", "home": "/nfs/ann", f"place:{ROOT}": "1201 755 w /nfs/ann"}
    usual[f"place:{STATE}"] = "0 1777 w /var/tmp"
    return Survey.from_dict({**record(name, **{**usual, **facts}), "become": become})


def found_for_login(*nodes):
    return [
        (each.host, each.check, each.found, each.expected)
        for each in login_findings(nodes, [ROOT, STATE], "ann", STATE)
    ]


def test_a_login_with_its_own_folders_has_no_finding():
    assert found_for_login(login("n1"), login("n2", **{f"place:{STATE}": f"1201 755 w {STATE}"})) == []
    # Where Ansible becomes root, or logs in as root, the login does not matter.
    as_root = login("n2", uid="0", user="root", home="/root")
    assert found_for_login(login("n1"), login("n2", become={"rc": 0, "stdout": "0\n"}, user="bob"), as_root) == []


@pytest.mark.parametrize(
    ("facts", "check", "found", "expected"),
    [
        ({"user": "bob"}, "trainyard_user", "the login is bob", "ann, as trainyard_become is false"),
        (
            {"home": "/home/ann", f"place:{ROOT}": "0 755  /"},
            "home",
            "/home/ann",
            f"/nfs/ann, as on n1, where {ROOT} is",
        ),
        (
            {f"place:{ROOT}": "0 755  /nfs"},
            "folder",
            f"{ROOT}: ann cannot make it, as /nfs cannot be written",
            "a folder of the login's user",
        ),
        (
            {f"place:{STATE}": f"0 755  {STATE}"},
            "folder",
            f"{STATE}: ann cannot write there",
            "a folder of the login's user",
        ),
        (
            {f"place:{STATE}": f"1300 755  {STATE}"},
            "folder",
            f"{STATE} is of uid 1300 with mode 755, so others can exchange what is in it",
            "a folder that only ann and root can change",
        ),
        (
            {f"place:{STATE}": f"1201 777 w {STATE}"},
            "folder",
            f"{STATE} is of uid 1201 with mode 777, so others can exchange what is in it",
            "a folder that only ann and root can change",
        ),
    ],
)
def test_what_differs_for_the_login_is_a_finding(facts, check, found, expected):
    assert found_for_login(login("n1"), login("n2", **facts)) == [("n2", check, found, expected)]


def test_who_is_not_root_manages_no_system():
    (finding,) = login_findings([login("n1"), login("n2", uid="0", user="root")], [ROOT], "ann", STATE, manages=True)
    assert (finding.host, finding.check, finding.found) == (
        "n1",
        "trainyard_manage_system",
        "true, and ann is not root",
    )


def test_software_of_somebody_else_and_unreadable_answers_are_no_finding():
    facts = {f"place:{ROOT}": f"1500 755  {ROOT}", f"place:{STATE}": "x 755 w /var"}
    assert found_for_login(login("n1"), login("n2", **facts)) == []
