"""Preflight over all nodes: containers, interfaces, proxies, scripts that differ; one list of what all nodes say."""

import ipaddress

import pytest
from ansible.module_utils.trainyard.base.findings import Finding
from ansible.module_utils.trainyard.job.placement.placement import Member
from ansible.module_utils.trainyard.job.plan import preflight
from hypothesis import given
from hypothesis import strategies as st
from job_samples import make_job, make_plan, member, node_facts, planned

MPI = {"version": "4.1.4", "path": "/usr/bin/mpirun"}


def container(number, address, *, reached=None, engine="docker", boot_id=None, kind="virtual"):
    """A member in a container on machine `number`, at `address` there; Ansible reaches it as `reached`."""
    facts = node_facts(number, container=engine, boot_id=boot_id or f"boot-{number}")
    facts["networks"]["interfaces"][0].update(name="eth0", kind=kind, addresses=[f"{address}/16"])
    return Member(f"n{number + 1}", reached or address, facts, {}, {})


def checks(findings):
    return [(item.host, item.check) for item in findings]


# ---- containers


def test_containers_behind_the_addresses_of_their_machines():
    """Two machines with a container each, as `docker run -p 2222:22` makes them: both have 172.17.0.2."""
    members = [container(n, "172.17.0.2", reached=f"192.0.2.{n + 1}") for n in (0, 1)]
    _, findings = planned(make_job(), members)
    assert checks(findings) == [("n1", "container"), ("n2", "container")]
    assert findings[1].found.endswith("it is reached as 192.0.2.2, which it does not have")
    assert "--network host" in findings[0].action and "job_network" in findings[0].action
    # One container among machines is named alone.
    members = [member(0, boot_id="a"), container(1, "172.17.0.2", reached="gpu2")]
    _, findings = planned(make_job(), members)
    assert checks(findings) == [("n2", "container")]
    assert findings[0].found.endswith("172.17.0.0/16 is what engines give to containers on every machine")


@pytest.mark.parametrize(
    ("changes", "job"),
    [
        ({"boot_id": "the same"}, {}),  # one machine, where a bridge joins them
        ({"kind": "physical"}, {}),  # host networking
        ({}, {"network": "172.17.0.0/16"}),
        ({}, {"network": "eth0"}),
        ({"engine": ""}, {}),  # a machine with a VLAN behind an address that is translated
    ],
)
def test_containers_that_reach_each_other_are_not_refused(changes, job):
    members = [container(n, f"172.17.0.{n + 2}", reached=f"192.0.2.{n + 1}", **changes) for n in (0, 1)]
    assert len(make_plan(make_job(**job), members).placement.nodes) == 2
    routed = [container(n, f"10.244.{n}.7") for n in (0, 1)]
    assert [node.address for node in make_plan(make_job(), routed).placement.nodes] == ["10.244.0.7", "10.244.1.7"]


# ---- interfaces


def test_an_inventory_address_on_a_bridge_to_guests_is_refused():
    members = [member(0), member(1)]
    for number, item in enumerate(members):
        guests = {**item.facts["networks"]["interfaces"][0], "name": "virbr0", "kind": "bridge"}
        item.facts["networks"]["interfaces"].append({**guests, "addresses": [f"192.168.122.{number + 1}/24"]})
    members = [Member(m.host, f"192.168.122.{n + 1}", m.facts, {}, {}) for n, m in enumerate(members)]
    plan, findings = planned(make_job(), members)
    assert plan is None
    assert checks(findings) == [("n1", "interface"), ("n2", "interface")]
    assert make_plan(make_job(network="10.77.0.0/16"), members).placement.nodes[1].address == "10.77.0.2"
    # One node alone reaches itself by any address.
    assert make_plan(make_job(), members[:1]).placement.head.address == "192.168.122.1"


def test_variables_that_choose_such_an_interface_are_named():
    job = make_job(env={"NCCL_SOCKET_IFNAME": "=eth0,docker0"})
    members = [member(0), member(3, env={"GLOO_SOCKET_IFNAME": "lo"})]
    lo = {**members[1].facts["networks"]["interfaces"][0], "name": "lo", "addresses": ["127.0.0.1/8"]}
    members[1].facts["networks"]["interfaces"].append(lo)
    _, findings = planned(job, members)
    guests = "NCCL_SOCKET_IFNAME==eth0,docker0: docker0 (for containers or virtual machines of this node)"
    loopback = "GLOO_SOCKET_IFNAME=lo: lo (loopback)"
    assert [(item.host, item.found) for item in findings] == [("n1", guests), ("n4", guests), ("n4", loopback)]
    assert findings[2].action.startswith("remove GLOO_SOCKET_IFNAME from job_env or job_node_env")
    assert planned(make_job(env={"NCCL_SOCKET_IFNAME": "^docker,lo"}), [member(0), member(1)])[1] == []
    assert planned(job, [member(0)])[1] == [], "one node may talk to itself as it likes"


@pytest.mark.parametrize(
    ("variable", "value", "missing"),
    [
        ("NCCL_SOCKET_IFNAME", "ib0", True),
        ("NCCL_SOCKET_IFNAME", "eth", False),
        ("NCCL_SOCKET_IFNAME", "=eth", True),
        ("NCCL_SOCKET_IFNAME", "=ib0,eth0", False),
        ("NCCL_SOCKET_IFNAME", "eth0:1", False),
        ("NCCL_SOCKET_IFNAME", "^ib,docker", False),
        ("NCCL_SOCKET_IFNAME", "^=eth", False),
        ("NCCL_SOCKET_IFNAME", "^eth", True),
        ("HCCL_SOCKET_IFNAME", "enp", True),
        # Gloo takes whole names alone, and needs each.
        ("GLOO_SOCKET_IFNAME", "eth0", False),
        ("GLOO_SOCKET_IFNAME", "eth", True),
        ("GLOO_SOCKET_IFNAME", "eth0,ib0", True),
        ("GLOO_SOCKET_IFNAME", "=eth0", True),
        ("TP_SOCKET_IFNAME", "^lo", True),
    ],
)
def test_an_interface_that_a_node_does_not_have_is_found_before_the_start(variable, value, missing):
    _, findings = planned(make_job(env={variable: value}), [member(0)])
    found = f"{variable}={value}: the node has no such interface"
    assert [(item.check, item.found, item.expected) for item in findings] == (
        [("interface", found, "one of eth0")] if missing else []
    )


def test_a_toolkit_of_the_role_is_in_the_path_of_ranks():
    given = member(0)
    given.facts["cuda_home"] = "/opt/trainyard/cuda"
    env = make_plan(make_job(launcher="direct", venv="/v"), [given]).as_dict()["nodes"][0]["processes"][0]["env"]
    assert env["PATH"].startswith("/v/bin:/opt/trainyard/cuda/bin:/")


# ---- proxies


def test_proxies_that_would_stand_between_the_nodes():
    job = make_job(env={"https_proxy": "http://proxy:3128", "HTTP_PROXY": "http://proxy:3128"})
    nodes = "10.77.0.1,10.77.0.2,10.77.0.3"
    members = [member(0), member(1, env={"no_proxy": "localhost, 10.77.0.1"}), member(2, env={"NO_PROXY": nodes})]
    _, findings = planned(job, members)
    assert checks(findings) == [("n1", "proxy"), ("n2", "proxy")]
    assert findings[1].found.endswith("HTTP_PROXY in the job's environment, and no_proxy without 10.77.0.2, 10.77.0.3")
    assert f"no_proxy: {nodes}" in findings[0].action


@pytest.mark.parametrize("no_proxy", ["*", "10.77.0.0/16", "a.org,10.77.0.1,10.77.0.2", " [10.77.0.1] , 10.77.0.2"])
def test_proxies_that_leave_the_nodes_alone(no_proxy):
    make_plan(make_job(env={"all_proxy": "socks5://proxy:1080", "no_proxy": no_proxy}), [member(0), member(1)])


def test_a_proxy_in_a_secret_variable_or_on_one_node_counts():
    _, findings = planned(make_job(secret_env=["HTTPS_PROXY"]), [member(0)])
    assert findings[0].found.startswith("HTTPS_PROXY in the job's environment")
    _, findings = planned(make_job(), [member(0), member(1, env={"grpc_proxy": "http://proxy:1"})])
    assert checks(findings) == [("n2", "proxy")]
    assert planned(make_job(env={"http_proxy": ""}), [member(0)])[1] == []


@given(st.ip_addresses(), st.text(max_size=20), st.sampled_from(["{a}", "{a}/120", "*", ""]))
def test_exemptions(address, text, form):
    form = form.replace("/120", f"/{address.max_prefixlen - 8}").format(a=address)
    other = str(ipaddress.ip_address(int(address) ^ 1))
    missing = preflight.not_exempted([str(address), other])
    assert str(address) not in missing(f"{text.replace('*', '')},{form}") or not form
    assert missing(other) == [str(address)]
    assert missing("*") == []


# ---- scripts


def program(digest, path="/srv/train.py", form="script"):
    return {"programs": {"/srv/train.py": {"path": path, "sha256": digest * 64, "form": form}}, "findings": []}


def test_a_script_that_differs_on_one_node_is_named():
    answers = {f"n{n + 1}": program("b" if n == 2 else "a") for n in range(4)}
    (finding,) = preflight.compare_programs(answers)
    assert (finding.host, finding.check, finding.found) == ("n3", "scripts", "/srv/train.py sha256 bbbbbbbbbbbb")
    assert finding.expected.endswith("sha256 aaaaaaaaaaaa, as on n1 and 2 more")
    # The first of two that differ counts.
    (finding,) = preflight.compare_programs({"n1": program("a"), "n2": program("b")})
    assert finding.host == "n2" and finding.expected.endswith(" as on n1")


def test_programs_for_other_processors_and_nodes_without_an_answer_are_not_compared():
    arm = [program(digest, form="elf-183") for digest in "ab"]
    answers = {"n1": program("c", form="elf-62"), "n2": arm[0], "n3": arm[0], "n4": {}, "n5": {"unreachable": True}}
    assert preflight.compare_programs(answers) == []
    assert checks(preflight.compare_programs({**answers, "n6": arm[1]})) == [("n6", "scripts")]


@given(st.lists(st.sampled_from("abc"), min_size=1, max_size=30))
def test_exactly_those_that_differ_from_the_usual_copy_are_named(digests):
    answers = {f"n{number}": program(digest) for number, digest in enumerate(digests)}
    named = {item.host for item in preflight.compare_programs(answers)}
    kept = {digest for number, digest in enumerate(digests) if f"n{number}" not in named}
    assert len(kept) == 1
    usual = kept.pop()
    assert digests.count(usual) == max(map(digests.count, digests))
    assert len(named) == len(digests) - digests.count(usual)


def test_programs_and_scripts_that_nodes_compare():
    command = ["/srv/run.sh", "/srv/train.py", "--config=/srv/a.py", "data/x.txt", "/srv/data.bin"]
    node_plans = make_plan(make_job(command=command), [member(0), member(1)]).node_plans([])
    assert {part["program"] for part in node_plans.values()} == {"/srv/run.sh"}
    assert {tuple(part["scripts"]) for part in node_plans.values()} == {("/srv/train.py",)}


# ---- ssh


def test_only_the_head_of_an_mpirun_that_uses_ssh_tries_it():
    members = [member(number, mpi=MPI) for number in range(3)]

    def peers(**changes):
        job = make_job(launcher="mpirun", **changes)
        return [part["ssh_peers"] for part in make_plan(job, members).node_plans([]).values()]

    assert peers() == [[], [], []]
    by_ssh = peers(mpi_parameters={"plm_rsh_agent": "ssh"})
    assert by_ssh == [[{"host": "n2", "address": "10.77.0.2"}, {"host": "n3", "address": "10.77.0.3"}], [], []]
    assert peers(mpi_parameters={"plm_rsh_agent": "srun-agent"}) == [[], [], []]
    for launcher in ("torchrun", "direct"):
        assert not any(p["ssh_peers"] for p in make_plan(make_job(launcher=launcher), members).node_plans([]).values())


# ---- --limit and the whole list


def test_hosts_that_limit_leaves_out_are_not_called_unreachable():
    limited = Member("n2", "10.77.0.2", None, {}, {}, "n1,localhost")
    plan, findings = planned(make_job(), [member(0), limited])
    assert plan is None and checks(findings) == [("n2", "limit")]
    assert findings[0].found == "left out by --limit n1,localhost"
    silent = Member("n2", "10.77.0.2", None, {"unreachable": True, "msg": "timed out"}, {}, "n1,n2,localhost")
    assert checks(planned(make_job(), [member(0), silent])[1]) == [("n2", "reach")]


def test_everything_that_was_found_becomes_one_list():
    mine = Finding(check="job_nodes", found="9", expected="fewer", action="lower it")
    disk = {"host": "n1", "check": "disk", "found": "1 MiB", "expected": "more", "action": "make room"}
    reason = "Task failed: ssh: connect to host n3:\n No route to host"
    answers = {
        "n1": {"findings": [disk], "stale": False, "programs": program("a")["programs"]},
        "n2": program("b"),
        "n3": {"unreachable": True, "msg": reason},
        "n4": {"failed": True, "msg": "MODULE FAILURE\nNo start of json char found"},
        "n5": {},
    }
    found = preflight.join([mine], answers, "n[1:4]")
    hosts = [("", "job_nodes"), ("n5", "limit"), ("n3", "reach"), ("n4", "answer"), ("n1", "disk"), ("n2", "scripts")]
    assert checks(found) == hosts
    assert found[2].found == "ssh: connect to host n3: No route to host"
    assert found[3].found == "MODULE FAILURE No start of json char found"
    assert checks(preflight.join([], {"n5": {}})) == [("n5", "answer")]
    assert preflight.join([], {"n1": program("a")}) == []
