"""The judgement over the first look at every host."""

import pytest
from ansible.module_utils.trainyard.cluster.survey import Survey, describe_nodes, judge_survey, read_probe
from ansible.module_utils.trainyard.findings.findings import render

FREE = {"/opt/trainyard": 5.0}


def record(name, become=None, **said):
    values = {
        "hostname": name,
        "os_id": "debian",
        "os_version": "12",
        "python": "3.11.2",
        "free:/opt/trainyard": str(6 * 1024 * 1024),
        **said,
    }
    stdout = "".join(f"trainyard:{key}={value}\r\n" for key, value in values.items())
    return {
        "name": name,
        "connect": f"10.0.0.{name[1:]}",
        "probe": {"rc": 0, "stdout": "Welcome!\n" + stdout},
        "become": become or {"rc": 0, "stdout": "0\n"},
    }


def judge(*records, check_system=True):
    return judge_survey([Survey.from_dict(entry) for entry in records], FREE, check_system)


def test_healthy_hosts_have_no_finding_and_are_described():
    nodes = [record("n1"), record("n2", os_id="ubuntu", os_version="24.04", python="3.12.3")]
    assert judge(*nodes) == []
    assert describe_nodes([Survey.from_dict(node) for node in nodes]) == (
        "2 nodes: debian 12, ubuntu 24.04; Python 3.11.2, 3.12.3; at least 6 GiB free"
    )


@pytest.mark.parametrize(
    ("said", "check", "found"),
    [
        ({"os_id": "alpine", "os_version": "3.20"}, "operating system", "alpine 3.20"),
        ({"os_id": "debian", "os_version": "9"}, "operating system", "debian 9"),
        ({"python": "3.8.10"}, "Python", "Python 3.8.10"),
        ({"python": ""}, "Python", "no Python that runs"),
        ({"free:/opt/trainyard": "1048576"}, "space for /opt/trainyard", "1.0 GiB free"),
        ({"free:/opt/trainyard": ""}, "space for /opt/trainyard", "free space unknown"),
    ],
)
def test_what_a_host_lacks(said, check, found):
    (finding,) = judge(record("n1"), record("n2", **said))
    assert (finding.host, finding.check, finding.found) == ("n2", check, found)


def test_a_system_of_a_guide_that_cannot_be_served_says_why_and_what_to_do():
    bionic = {"os_id": "ubuntu", "os_version": "18.04", "python": "3.6.9"}
    system, python = judge(record("n1", **bionic))
    assert system.found == "ubuntu 18.04, whose own Python is 3.6"
    for way in ("upgrade the node", "ansible_python_interpreter", "trainyard_manage_system=false"):
        assert way in system.action
    assert (python.found, python.expected) == ("Python 3.6.9", "Python 3.9 or newer")
    assert python.action == "install a newer one beside it and name that in ansible_python_interpreter"
    # The way that is named there leads somewhere.
    assert judge(record("n1", **{**bionic, "python": "3.11.9"}), check_system=False) == []


def test_another_system_is_fine_where_the_system_is_left_alone():
    assert judge(record("n1", os_id="fedora", os_version="43"), check_system=False) == []


def test_python_3_10_is_newer_than_3_9():
    assert judge(record("n1", python="3.10.1"), record("n2", python="3.9.0")) == []


@pytest.mark.parametrize(
    ("become", "found"),
    [
        (
            {"rc": 1, "msg": "non-zero return code", "stdout": "", "stderr": "sudo: a password is required\n"},
            "sudo wants a password",
        ),
        (
            {
                "rc": 127,
                "msg": "non-zero return code",
                "stdout": "bash: line 1: sudo: command not found\r\n",
                "stderr": "Shared connection to n1 closed.\r\n",
            },
            "no sudo here",
        ),
        ({"rc": 1, "msg": "non-zero return code", "stdout": "No root.\n"}, "No root. (exit status 1)"),
        ({"rc": 0, "stdout": "1000\n"}, "became uid 1000"),
        ({"failed": True, "msg": "Task failed: Missing sudo password"}, "sudo wants a password"),
    ],
)
def test_privileges_that_are_refused(become, found):
    (finding,) = judge(record("n1", become=become))
    assert (finding.check, finding.found) == ("become", found)


def test_privileges_that_are_not_wanted_are_no_finding():
    assert judge(record("n1", become={"skipped": True, "skip_reason": "Conditional result was False"})) == []


def test_an_unreachable_host_is_one_finding_and_the_others_are_judged():
    silent = {
        "name": "n2",
        "connect": "10.0.0.2",
        "probe": {"unreachable": True, "msg": "Task failed: Failed to connect to the host via ssh: timed out"},
    }
    findings = judge(record("n1", python="3.8.0"), silent)
    assert [(finding.host, finding.check) for finding in findings] == [("n2", "reach"), ("n1", "Python")]
    assert findings[0].found == "timed out"
    assert findings[0].expected == "a node that answers over ssh, at 10.0.0.2"


def test_what_a_login_prints_is_a_finding_where_modules_would_take_it_for_their_answer():
    def printed(line):
        node = record("n1")
        return judge({**node, "probe": {"rc": 0, "stdout": f"{line}\n{node['probe']['stdout']}"}})

    (finding,) = printed("{maintenance: tonight}")
    assert (finding.check, finding.found) == ("login", "it prints before the answer: {maintenance: tonight}")
    assert printed("[site] Authorised use only") == []


def test_host_names_and_addresses_held_twice_name_all_holders():
    twin = {**record("n2", hostname="N1.example.org"), "connect": "10.0.0.1"}
    findings = judge(record("n1"), twin, record("n3"))
    assert [(finding.host, finding.check, finding.found) for finding in findings] == [
        ("n1", "host name", "n1 on n1, n2"),
        ("n2", "host name", "n1 on n1, n2"),
        ("n1", "inventory", "10.0.0.1 on n1, n2"),
        ("n2", "inventory", "10.0.0.1 on n1, n2"),
    ]


def test_only_the_probes_own_lines_count():
    assert read_probe("motd: x=y\n trainyard:free:/a=1=2\nhostname=evil\n") == {"free:/a": "1=2"}


def test_a_thousand_hosts_with_one_fault_are_one_block():
    probe = "ssh: connect to host {} port 22: Connection timed out"
    nodes = [
        {"name": f"gpu{n:04d}", "connect": f"10.1.{n // 250}.{n % 250}",
         "probe": {"unreachable": True, "msg": probe.format(f"10.1.{n // 250}.{n % 250}")}}
        for n in range(1, 1001)
    ]  # fmt: skip
    text = render(judge(*nodes), "{count} {findings}:")
    assert len(text.splitlines()) == 6 and text.count("gpu0001 to gpu1000") == 1, text


def test_a_thousand_copies_of_one_image_are_one_block():
    nodes = [{**record(f"n{n}", hostname="image", python="3.8.1"), "connect": f"10.2.{n // 250}.{n % 250}"}
             for n in range(1000)]  # fmt: skip
    text = render(judge(*nodes), "{count} {findings}:")
    assert len(text.splitlines()) == 11 and len(text) < 700, text
