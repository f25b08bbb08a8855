"""Clusters whose hosts site.yml refuses, and what readers do for each part of the advice."""

from __future__ import annotations

from dataclasses import replace

from advice_readers import together
from ansible.module_utils.trainyard.cluster.hosts import ClusterSettings, Node, inventory_findings, plan_cluster
from ansible.module_utils.trainyard.cluster.survey import Survey, survey_findings

_RECORD = {
    **{"connect": "10.0.0.1", "addresses": ["10.0.0.1"], "default_address": "10.0.0.1", "user": None, "uid_owner": ""},
    **{"gid_owner": "", "group_gid": None, "hard_limits": {"memlock": None, "nofile": 1 << 20}},
    **{"can_raise_limits": True, "nr_open": 1 << 20, "container": ""},
}
_SETTINGS = ClusterSettings("train", 2000, "train", 2000, "", None, 1 << 20)
_GIB = 1 << 20


class Site:
    """A cluster before site.yml: nodes n1 and n2, and the settings. Its launch is the check of all nodes."""

    def __init__(self, first=None, second=None, **settings):
        self.nodes = [
            {**_RECORD, "name": name, "names": [name], "hostname": name, "connect": address, "addresses": [address]}
            for name, address in (("n1", "10.0.0.1"), ("n2", "10.0.0.2"))
        ]
        self.nodes[0].update(first or {})
        self.nodes[1].update(second or {})
        self.settings = settings
        self.is_managed = True

    def launch(self, _):
        """Return the findings about the nodes."""
        if not self.is_managed:
            return inventory_findings([])
        nodes = [Node.from_dict(node) for node in self.nodes]
        return list(plan_cluster(nodes, replace(_SETTINGS, **self.settings)).findings)


class FirstProbe(Site):
    """The first probe of the nodes, of which the second has other facts."""

    def __init__(self, **facts):
        super().__init__()
        self.facts = {"hostname": "n2", "os_id": "debian", "os_version": "12", "python": "3.11.2", **facts}

    def launch(self, _):
        """Return the findings about the nodes' systems."""
        first = {"hostname": "n1", "os_id": "debian", "os_version": "12", "python": "3.11.2"}
        free = {"/opt/trainyard": 5.0}
        surveys = []
        for node, facts in zip(self.nodes, (first, self.facts), strict=True):
            all_facts = {"free:/opt/trainyard": 6 * _GIB, **facts}
            probe = {"rc": 0, "stdout": "".join(f"trainyard:{key}={value}\n" for key, value in all_facts.items())}
            surveys.append(Survey.from_dict({"name": node["name"], "connect": node["connect"], "probe": probe}))
        return survey_findings(surveys, free, self.is_managed)


def first(**changes):
    return lambda site: site.nodes[0].update(changes)


def second(**changes):
    return lambda site: site.nodes[1].update(changes)


def settings(**changes):
    return lambda site: site.settings.update(changes)


def facts(**changes):
    return lambda site: site.facts.update(changes)


def unmanaged(site):
    site.is_managed = False


def readdressed(site):
    site.nodes[1]["connect"] = "10.0.0.1"
    return site


CASES = {
    # Names.
    "a name that the system has": lambda _: (
        Site({"name": "localhost", "names": ["localhost"], "hostname": "n1"}),
        {
            "give the host another name in the inventory, and its address as ansible_host": first(
                name="n1", names=["n1", "10.0.0.1"]
            ),
            "do not manage the system (trainyard_manage_system: false)": unmanaged,
        },
    ),
    "another kernel name": lambda _: (
        Site({"hostname": "gpu-17"}),
        {
            "hostnamectl set-hostname n1": first(hostname="n1"),
            "give the host that name in the inventory": first(name="gpu-17", names=["gpu-17"]),
            "in its ssh_mesh_extra_principals": first(names=["n1", "gpu-17"]),
        },
    ),
    "the name of another node": lambda _: (
        Site({"hostname": "n2"}, {"hostname": "n1"}),
        {
            "correct the inventory": together(first(name="n2", names=["n2"]), second(name="n1", names=["n1"])),
            "hostnamectl set-hostname n1": first(hostname="n1"),
        },
    ),
    "one name for two nodes": lambda _: (
        Site({"name": "10.0.0.1", "names": ["10.0.0.1"]}, {"name": "10.0.0.2", "names": [], "hostname": "n1"}),
        {"on all but one of them: hostnamectl set-hostname NAME": second(hostname="gpu-2")},
    ),
    # The training user.
    "a number of somebody else": lambda _: (
        Site({"uid_owner": "alice"}),
        {
            "choose a number that is free on all nodes (trainyard_uid)": together(
                settings(uid=3000), first(uid_owner="")
            ),
            "change the existing one": first(uid_owner=""),
        },
    ),
    "another number of the user": lambda _: (
        Site({"user": {"uid": 1001, "gid": 2000}}),
        {
            "set trainyard_uid: 1001, if nobody else has it on any node": settings(uid=1001),
            "change the existing one": first(user={"uid": 2000, "gid": 2000}),
        },
    ),
    "another number of the user's group": lambda _: (
        Site({"user": {"uid": 2000, "gid": 7}, "group_gid": 7}),
        {
            "set node_baseline_gid: 7, if nobody else has it on any node": settings(gid=7),
            "change the existing one": first(user={"uid": 2000, "gid": 2000}, group_gid=2000),
        },
    ),
    "root as the user": lambda _: (
        Site(user="root", uid=0),
        {"set trainyard_user and trainyard_uid to a user of its own for training": settings(user="ann", uid=2000)},
    ),
    # Addresses and limits.
    "an address that the node does not have": lambda _: (
        Site({"connect": "192.0.2.7"}),
        {"set trainyard_network to the network that the nodes share": settings(network="10.0.0.0/24")},
    ),
    "no address on the network": lambda _: (
        Site(network="10.0.0.0/31"),
        {
            "correct trainyard_network (or node_baseline_network)": settings(network="10.0.0.0/24"),
            "give the node an address there": second(addresses=["10.0.0.0"]),
        },
    ),
    "an address of two nodes": lambda _: (
        Site({"connect": "10.0.0.2", "addresses": ["10.0.0.2", "10.1.0.1"]}, {"addresses": ["10.0.0.2", "10.1.0.2"]}),
        {"correct the inventory": first(connect="10.1.0.1"), "trainyard_network": settings(network="10.1.0.0/24")},
    ),
    "fewer open files than the kernel allows": lambda _: (
        Site({"nr_open": 1024}),
        {"lower node_baseline_nofile": settings(nofile=1024), "raise fs.nr_open": first(nr_open=1 << 20)},
    ),
    # The first probe.
    "another system": lambda _: (
        FirstProbe(os_id="alpine", os_version="3.20"),
        {
            "use a node with one of these": facts(os_id="ubuntu", os_version="24.04"),
            "set trainyard_manage_system: false (or trainyard_become: false, if you are not root there) and have the "
            "driver, MPI and packages that programs need installed": unmanaged,
        },
    ),
    "an old system": lambda _: (
        FirstProbe(os_id="ubuntu", os_version="18.04", python="3.6.9"),
        {
            "upgrade the node to one of these": facts(os_id="ubuntu", os_version="22.04", python="3.10.4"),
            "install Python 3.9 or newer, name it in ansible_python_interpreter, set trainyard_manage_system: false "
            "(or trainyard_become: false, if you are not root there) and have the driver, MPI and packages that "
            "programs need installed (`apt install python3-venv libgomp1 g++ python3-dev`)": together(
                facts(python="3.11.9"), unmanaged
            ),
        },
    ),
    "too little room for the software": lambda _: (
        FirstProbe(**{"free:/opt/trainyard": 1 * _GIB}),
        {"put the folder elsewhere (trainyard_root, trainyard_state)": facts(**{"free:/opt/trainyard": 9 * _GIB})},
    ),
    "two hosts of one name": lambda _: (
        FirstProbe(hostname="n1"),
        {"rename the nodes (hostnamectl set-hostname): launchers distinguish nodes by it": facts(hostname="n2")},
    ),
    "two hosts of one address": lambda _: (
        readdressed(FirstProbe()),
        {"correct ansible_host in the inventory": second(connect="10.0.0.2")},
    ),
}
