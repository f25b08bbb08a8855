"""Filters, as templates use them."""

import base64

import pytest
from filters import FILTERS, of_hosts


def test_peers_of_a_node():
    peers_of = FILTERS["peers_of"]
    names = ["n1", "n2", "n3", "n4", "n5"]
    assert peers_of(names, "n4", "all") == ["n5", "n1", "n2", "n3"]
    assert peers_of(names, "n4", 2) == ["n5", "n1"]
    assert peers_of(["n1"], "n1", "all") == []
    assert peers_of(names, "n4", "all", ["n2"]) == ["n5", "n2"]
    assert peers_of(names, "n4", "all", []) == ["n5"]


@pytest.mark.parametrize(("own", "most", "message"), [
    ("n9", "all", "n9 is none of the nodes: n1"), ("n1", "some", "expected 'all' or a number of peers from 1 on"),
])  # fmt: skip
def test_peers_of_nobody(own, most, message):
    with pytest.raises(ValueError, match=message):
        FILTERS["peers_of"](["n1"], own, most)


def test_vars_of_hosts_that_have_them_and_hosts_that_do_not():
    hostvars = {"n1": {"a": 1, "b": None}, "n2": {"c": 2}}
    records = FILTERS["vars_of"](["n2", "n1"], hostvars, ["b", "c"])
    assert records == [{"name": "n2", "c": 2}, {"name": "n1", "b": None}]


IDENTITY = {
    "hostname": "n1", "addresses": ["10.0.0.1"], "default_address": "10.0.0.1",
    "user": None, "uid_owner": "", "gid_owner": "", "group_gid": None, "nr_open": 1048576, "can_raise_limits": False,
    "hard_limits": {"memlock": 65536, "nofile": 4096}, "container": "podman",
}  # fmt: skip


def baseline_plan(twins=False, **given):
    settings = {"user": "train", "uid": 2000, "group": "train", "gid": 2000, "nofile": 1024, **given}
    host = {"__node_baseline_identity": IDENTITY, "ansible_host": "10.0.0.1"}
    return of_hosts("node_baseline_plan", {"n1": host, **({"n2": host} if twins else {})}, **settings)


def test_node_baseline_plan_has_entries_limits_and_exceptions():
    found = baseline_plan(sets_clock=True, rdma=["n1"])
    assert found["findings"] == []
    assert found["entries"] == [{"address": "10.0.0.1", "names": ["n1"]}]
    assert found["limits"] == {"n1": {"memlock": 65536, "nofile": 1024}}
    assert [text.partition(":")[0] for text in found["exceptions"]] == ["n1", "n1"]


def test_all_wrong_input_of_node_baseline_is_found_at_once():
    network, memlock = baseline_plan(network="10.0.0", memlock="lots")["findings"]
    assert network["found"] == "'10.0.0' does not appear to be an IPv4 or IPv6 network"
    assert memlock["found"].startswith("memlock is 'lots'; expected 'unlimited' or a number of KiB")
    assert [len(baseline_plan(**wrong)["findings"]) for wrong in ({"network": "10.0.0"}, {"memlock": "lots"})] == [1, 1]


def test_versions_of_environments_are_compared_with_the_first_host():
    texts = {"torch": "torch %s", "numpy": "numpy %s"}
    hosts = {
        name: {
            "python_runtime_result": {"version": "3.11.2", "packages": {"torch": torch}, "verified": {"cuda": "13.0"}}
        }
        for name, torch in (("n1", "2.13.0"), ("n2", "2.13.0"), ("n3", "2.12.0"))
    }
    (found,) = of_hosts("python_runtime_findings", hosts, texts, "pytorch")
    assert (found["host"], found["found"]) == ("n3", "torch 2.12.0, numpy missing, Python 3.11")
    assert found["expected"] == "torch 2.13.0, numpy missing, Python 3.11, as on n1"
    assert of_hosts("pytorch_build_findings", hosts, "13.0", "cu130") == []
    assert of_hosts("pytorch_build_findings", hosts, "", "cpu") == []
    found = of_hosts("pytorch_build_findings", {**hosts, "n4": {"python_runtime_result": {}}}, "12.6", "cu126")
    assert [(each["host"], each["found"]) for each in found][::3] == [
        ("n1", "it is for CUDA 13.0"), ("n4", "it is for CUDA unknown"),
    ]  # fmt: skip


def test_scripts_are_compared_with_the_first_host():
    hosts = {"n1": {"__oneflow_digests": {"/a": "1", "/b": "2"}}, "n2": {"__oneflow_digests": {"/a": "1", "/b": "3"}}}
    (found,) = of_hosts("oneflow_script_findings", hosts)
    assert (found["host"], found["check"], found["found"]) == ("n2", "/b", "sha256 3")


def test_hosts_with_a_variable():
    hostvars = {"n1": {"done": True}, "n2": {"done": False}, "n3": {}}
    assert FILTERS["hosts_with"](["n3", "n2", "n1"], hostvars, "done") == ["n1"]


def test_keys_that_were_made_are_those_of_the_host_alone():
    made = {"n1": {"__ssh_mesh_made": {"user_key": "ssh-ed25519 AAAA", "host_key": "x"}}, "n2": {}}
    assert of_hosts("ssh_mesh_keys", made) == {"n1": {"user_key": "ssh-ed25519 AAAA"}, "n2": {}}
    with pytest.raises(ValueError, match="the answer cannot be used: __ssh_mesh_made"):
        of_hosts("ssh_mesh_keys", {"n1": {"__ssh_mesh_made": {"user_key": []}}})


@pytest.mark.parametrize(("name", "given", "error", "message"), [
    ("cuda_toolkit_offers", ("n1", "distro"), TypeError, "records is 'n1', expected a list"),
    ("cuda_toolkit_offers", (["n1"], "distro"), TypeError, "an entry of records is 'n1', expected a dictionary"),
    ("nvidia_driver_offers", ({"branch": ""},), ValueError, "a record has no 'state'"),
    ("ascend_findings", ([], {}), TypeError, "missing a required argument: 'required'"),
    ("ascend_findings", ([], {}, 8), TypeError, "required is '8', expected a dictionary"),
    ("cuda_toolkit_findings", ([], {}, {}, "yes"), TypeError, "sessions is 'yes', expected true or false"),
    ("slurm_findings", ([], {}, "lab"), TypeError, "settings is 'lab', expected a dictionary"),
])  # fmt: skip
def test_wrong_arguments_of_a_filter_are_named(name, given, error, message):
    with pytest.raises(error, match=message):
        FILTERS[name](*given)


def test_slurm_findings_come_from_registered_results():
    settings = {"name": "lab", "controller": "n1", "confinement": "none"}
    without = {"changed": False, "failed": False, "msg": "file not found: /etc/slurm/slurm.conf"}
    bare = {"ansible_facts": {"hostname": "n1"}, "__slurm_conf": without, "__slurm_cgroups": {"skipped": True}}

    def found(answer, settings, states=""):
        return [(each["host"], each["check"]) for each in of_hosts("slurm_findings", {"n1": answer}, settings, states)]

    assert found(bare, settings) == []
    foreign = {**bare, "__slurm_conf": {"content": base64.b64encode(b"ClusterName=old\n").decode()}}
    assert found(foreign, settings) == [("n1", "slurm.conf")]
    confining = {**settings, "confinement": "cgroup"}
    # An answer that lacks what was asked for is no confinement.
    for answer in ({"stdout": "", "rc": 1}, {"skipped": True}):
        assert found({**bare, "__slurm_cgroups": answer}, confining) == [("n1", "slurm_confinement")]
    assert found(bare, settings, "n2 allocated\n") == [("n1", "slurm_hosts")]
    assert found({**bare, "ansible_facts": {"hostname": "n1\nProlog=/x"}}, settings) == [("n1", "host name")]
    (node,) = of_hosts("slurm_nodes", {"n1": {**bare, "name": "n2", "evil": 1}})
    assert (node["name"], "evil" in node) == ("n1", False)


PROBE = "trainyard:hostname=%s\ntrainyard:os_id=debian\ntrainyard:os_version=12\ntrainyard:python=3.11.2\n%d\n"


def test_a_host_that_claims_the_name_of_another_is_at_fault_alone():
    host = {"trainyard_become": True, "__validate_probe": {"rc": 0, "stdout": PROBE % ("n1", 0)}}
    found = of_hosts("validate_survey", {"n1": host, "n3": host}, {}, True)
    assert [(each["check"], each["host"]) for each in found["findings"]] == [("host name", "n3")]


def test_validate_refused_names_hosts_that_may_answer_without_privileges():
    hosts = {
        "answers": {"rc": 0, "stdout": PROBE % ("n1", 0)},
        "wants a password": {"failed": True, "msg": "Missing sudo password"},
        "refuses": {"rc": 1, "stdout": "", "stderr": "sudo: a password is required\n"},
        "is down": {"unreachable": True, "msg": "timed out"},
    }
    records = {name: {"trainyard_become": True, "__validate_probe": message} for name, message in hosts.items()}
    records["as itself"] = {"trainyard_become": False, "__validate_probe": hosts["refuses"]}
    records["not probed"] = {"trainyard_become": True}
    assert of_hosts("validate_refused", records) == ["wants a password", "refuses"]


def test_files_come_after_the_folders_that_they_lie_in():
    assert FILTERS["with_folders"]({"a/__init__.py": "", "a/b/c.py": "x = 1\n", "a/b/d.py": ""}, "/lib") == [
        {"path": "/lib/a"},
        {"path": "/lib/a/b"},
        {"path": "/lib/a/__init__.py", "content": ""},
        {"path": "/lib/a/b/c.py", "content": "x = 1\n"},
        {"path": "/lib/a/b/d.py", "content": ""},
    ]
