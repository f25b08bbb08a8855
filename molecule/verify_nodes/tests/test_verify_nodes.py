"""The verification of healthy nodes, and of nodes that are odd, cut off, frozen or flapping, in the lab."""

import contextlib
import json
import re
import subprocess

import pytest
from lab_jobs import PROJECT

FIXTURES = PROJECT / "tests/fixtures/verify"
ENVIRONMENT = "/opt/trainyard/venvs/verify-test"
TREES = "/var/lib/verify-test"
# Ports outside the ephemeral range, where rendezvous listen.
DROP_RENDEZVOUS = "tcp dport { 10000-32767, 61000-65535 } drop"
DROP_LARGE = "tcp sport 10000-65535 tcp dport 10000-65535 meta length gt 1200 drop"


@pytest.fixture
def look(run_playbook, tmp_path):
    """Run the role and return its lists of checks; the play itself must never fail."""

    def run(**extra):
        file = tmp_path / "checks.json"
        done = run_playbook("checks.yml", checks_file=str(file), **extra).expect(0)
        assert not any(
            count for host, count in done.changes.items() if host not in ("localhost", extra.get("checks_on"))
        )
        return json.loads(file.read_text())

    return run


@pytest.fixture(scope="module", autouse=True)
def environments(nodes):
    """Give every node an environment that looks like one of trainyard's, to change it on one of them."""
    folder = f"{ENVIRONMENT}/lib/python3.11/site-packages"
    for node in nodes.values():
        node.host.check_output(f"mkdir -p {folder}/alpha-1.0.dist-info {folder}/beta-2.1.dist-info")
        node.host.check_output(f"echo 'version = 3.11.2' >{ENVIRONMENT}/pyvenv.cfg")
    yield
    for node in nodes.values():
        node.host.check_output(f"rm -rf {ENVIRONMENT}")


@contextlib.contextmanager
def firewall(node, rule):
    """Have a node drop what comes in and fits the rule."""
    node.host.check_output("command -v nft || { apt-get -q update && apt-get -qy install nftables; } >/dev/null 2>&1")
    node.host.check_output(
        "nft add table inet verify && nft add chain inet verify in '{ type filter hook input priority 0; }' "
        f"&& nft add rule inet verify in {rule}"
    )
    try:
        yield
    finally:
        node.host.check_output("nft delete table inet verify")


def by_name(checks, *states):
    return {check["name"]: check for check in checks if check["state"] in states}


def no_listener_is_left(nodes):
    return all("python" not in node.host.check_output("ss -Htlnp") for node in nodes.values())


def test_sound_nodes_pass_but_for_a_link_that_flaps_while_jobs_run(look, nodes, node_names, node_vars):
    second = node_names[1]
    gateway = nodes[second].host.check_output("ip route show default").split()[2]
    flap = f"ip link set eth0 down; ip link set eth0 up; ip route replace default via {gateway}"
    found = look(checks_between=flap, checks_on=second)
    assert not by_name(found["drift"] + found["reach"] + found["devices"], "fail", "unknown")
    assert found["usable"] == node_names
    assert [(node["host"], node["address"]) for node in found["nodes"]] == [
        (name, node_vars[name]["ansible_host"]) for name in node_names
    ]
    count = len(node_names)
    passed = by_name(found["reach"], "pass")
    assert set(passed) == {"answer", "job address", "job network", "names", "ssh"}
    assert passed["job network"]["data"]["tried"] == count * (count - 1) * 2
    assert passed["names"]["found"] == f"{count * count} names resolve"
    assert {"kernel", "operating system", "memlock limit", "time offset", "environment verify-test"} <= set(
        by_name(found["drift"], "pass")
    )
    (failed,) = by_name(found["counters"], "fail", "unknown").values()
    assert (failed["name"], failed["hosts"]) == ("NIC error counters", [second])
    assert re.fullmatch(rf"{second}: eth0 carrier_down_count \+[1-9]", failed["found"])
    assert no_listener_is_left(nodes)


def test_a_node_with_another_package_another_mtu_and_a_firewall_is_named_for_each(look, nodes, node_names):
    last = node_names[-1]
    node, packages = nodes[last], f"{ENVIRONMENT}/lib/python3.11/site-packages"
    node.host.check_output(f"mv {packages}/beta-2.1.dist-info {packages}/beta-2.2.dist-info")
    node.host.check_output("ip link set eth0 mtu 1400")
    try:
        with firewall(node, DROP_RENDEZVOUS):
            found = look()
    finally:
        node.host.check_output("ip link set eth0 mtu 1500")
        node.host.check_output(f"mv {packages}/beta-2.2.dist-info {packages}/beta-2.1.dist-info")
    drift = by_name(found["drift"], "fail", "unknown")
    assert {name: check["hosts"] for name, check in drift.items()} == {
        "MTU of the job's interface": [last],
        "environment verify-test": [last],
    }
    assert drift["environment verify-test"]["found"] == f"beta 2.2 instead of 2.1 on {last}"
    assert drift["MTU of the job's interface"]["found"] == f"1400 on {last}"
    (failed,) = by_name(found["reach"], "fail", "unknown").values()
    assert (failed["name"], failed["hosts"]) == ("job network", [last])
    assert failed["reason"] == f"{len(node_names) - 1} nodes do not reach it"
    assert "no answer within 10 s (rendezvous port)" in failed["found"]
    assert found["usable"] == node_names[:-1]
    assert no_listener_is_left(nodes)


def test_a_frozen_node_is_told_once_and_large_packets_that_vanish_between_two_others_are_found(look, nodes, node_names):
    first, second, *_, last = node_names
    nodes[first].podman("pause")
    try:
        with firewall(nodes[last], DROP_LARGE):
            found = look(verify_connect_timeout_s=5)
    finally:
        nodes[first].podman("unpause")
    failed = by_name(found["reach"], "fail", "unknown")
    assert set(failed) == {"answer", "job network"}
    assert failed["answer"]["hosts"] == [first]
    assert "timed out" in failed["answer"]["found"]
    assert set(failed["job network"]["hosts"]) <= set(node_names[1:])
    assert f"{last} -> {second}" in failed["job network"]["found"]
    assert "of 24000 bytes within 5 s: large packets may vanish (MTU)" in failed["job network"]["found"]
    assert not by_name(found["drift"] + found["devices"] + found["counters"], "fail", "unknown")
    assert found["usable"] == node_names[1:-1]


def test_gpu_nodes_that_were_composed_are_judged_before_and_after(look, nodes, node_names, tmp_path):
    """The whole way for GPUs and RDMA ports, as no node here has any: every node reads a composed machine."""
    unfold = (
        "import sys; sys.path.insert(0, 'tests/unit'); from pathlib import Path; from captured_tree import unfold\n"
        "for name in sys.argv[2:]: unfold(name, Path(sys.argv[1]), Path('tests/fixtures/verify'))"
    )
    trees = {"before": ["gpu2"], "after": ["gpu2"], "errors": ["gpu2", "gpu2_errors"]}
    for name, over in trees.items():
        subprocess.run(["python3", "-c", unfold, str(tmp_path / name), *over], check=True, cwd=PROJECT)
    last = node_names[-1]
    try:
        for name, node in nodes.items():
            later = "errors" if name == last else "after"
            for source, target in (("before", "before"), (later, "after")):
                node.host.check_output(f"mkdir -p {TREES}")
                subprocess.run(
                    ["podman", "cp", str(tmp_path / source), f"{node.container}:{TREES}/{target}"], check=True
                )
        found = look(
            checks_parts=["facts", "drift", "devices"],
            __verify_tree=f"{TREES}/before",
            __verify_tree_after=f"{TREES}/after",
        )
    finally:
        for node in nodes.values():
            node.host.check_output(f"rm -rf {TREES}")
    assert not by_name(found["devices"], "fail", "unknown")
    assert {"GPU ECC errors", "GPU Xid", "RDMA ports"} <= set(by_name(found["devices"], "pass"))
    passed = by_name(found["drift"], "pass")
    assert passed["driver"]["found"] == "570.86.15"
    assert passed["hardware"]["found"] == f"{len(node_names)} with 10de:2330, 15b3:101d, 15b3:1021"
    # The machines that were composed have one name, and that is a fault.
    assert by_name(found["drift"], "fail")["host names"]["hosts"] == node_names
    failed = by_name(found["counters"], "fail")
    assert {name: check["hosts"] for name, check in failed.items()} == {
        "RDMA error counters": [last],
        "NIC error counters": [last],
        "GPU errors under load": [last],
    }
    assert "GPU 1 uncorrected ECC errors +2" in failed["GPU errors under load"]["found"]
