"""Launches with findings about networks, and what readers do for each part of the advice."""

from __future__ import annotations

import socket

from advice_readers import AS_WRITTEN, have, on_both, together
from ansible.module_utils.trainyard_node.job.plan import obstacles
from job_cluster import free_port
from launch_world import World, alone, eth0, eth1, interface, linked

WIDE, NARROW = "10.77.0.0/16", "10.77.0.0/24"


def guests(number):
    return interface("docker0", "172.17.0.1/16", kind="bridge")


def at_guests(**job):
    return linked(eth0, guests, **job).having(addresses={"n1": "172.17.0.1", "n2": "172.17.0.1"})


def contained():
    """Return a launch in containers of two machines, without host networking."""

    def inner(number):
        return interface("eth0", f"172.17.0.{number}/16", kind="virtual")

    world = linked(inner, eth1).having(addresses={"n1": "172.17.0.1", "n2": "172.17.0.2"})
    have(n1={"container": "docker", "boot_id": "a"}, n2={"container": "docker", "boot_id": "b"})(world)
    return world


def both(number):
    return interface("eth0", f"10.77.0.{number}/16", f"10.88.0.{number}/16")


def local(number):
    return interface("eth0", f"10.77.0.{number}/16", f"fe80::{number}/64")


def only_local(number):
    return interface("eth0", f"fe80::{number}/64")


def dual(number):
    return interface("eth0", f"10.77.0.{number}/16", f"fd00::{number}/64")


def empty_ib(number):
    return interface("ib0")


def given_ib(number):
    return interface("ib0", f"169.254.0.{number}/16")


def down(number):
    return eth1(number, up=False)


def same(number):
    return interface("eth0", "10.88.0.1/16")


def silent(number):
    return interface("eth0", f"10.66.0.{number}/16")


def occupied(folder):
    """Return a launch with a rendezvous port that this process has."""
    holder = socket.create_server(("127.0.0.1", 0))
    world = alone(folder, port=holder.getsockname()[1])
    world.holder = holder
    return world


CASES = {
    # Networks.
    "no such interface": lambda _: (
        linked(eth0, network="eth9"),
        {
            "give job_network an interface that every node has": {"network": "eth0"},
            "a CIDR such as 10.77.0.0/24": {"network": NARROW},
        },
    ),
    "an interface without an address": lambda _: (
        linked(eth0, empty_ib, network="ib0"),
        {
            "give the interface an address (169.254.0.0/16 will do)": on_both(eth0, given_ib),
            "set job_network to another network": {"network": WIDE},
        },
    ),
    "a network that no node has": lambda _: (
        linked(eth0, network="10.99.0.0/16"),
        {"set job_network to a network that every node is on": {"network": WIDE}},
    ),
    "link-local": lambda _: (linked(local, network="fe80::/64"), {"set job_network: 10.77.0.0/16": AS_WRITTEN}),
    "several networks": lambda _: (
        linked(eth0, eth1).having(addresses={"n1": "198.51.100.1", "n2": "198.51.100.2"}),
        {
            "set job_network to a CIDR such as 10.77.0.0/24": {"network": NARROW},
            "to the name of an interface": {"network": "eth0"},
        },
    ),
    "several addresses": lambda _: (
        linked(both, network="eth0"),
        {"set job_network to a CIDR that holds only one of them": {"network": WIDE}},
    ),
    "a link that is down": lambda _: (
        linked(eth0, down, network="eth1"),
        {"connect it or bring it up": on_both(eth0, eth1), "set job_network to another network": {"network": "eth0"}},
    ),
    "networks of guests": lambda _: (
        at_guests(),
        {"set job_network to the network between the nodes": {"network": WIDE}},
    ),
    "one address for two nodes": lambda _: (
        linked(same, network="eth0"),
        {
            "set job_network to the network between the nodes": together(on_both(same, eth0), {"network": WIDE}),
            "give each node its own address": on_both(eth0),
        },
    ),
    "containers of two machines": lambda _: (
        contained(),
        {
            "set job_network to a network that spans the machines": {"network": "10.88.0.0/16"},
            "run the container with host networking (--network host)": on_both(eth0),
        },
    ),
    "IPv6 with mpirun": lambda _: (
        linked(dual, launcher="mpirun", network="fd00::/64"),
        {"set job_network to an IPv4 network": {"network": WIDE}},
    ),
    "a proxy": lambda _: (
        World(env={"http_proxy": "http://proxy"}),
        {
            "set no_proxy: 10.77.0.1,10.77.0.2 in job_env": {
                "env": {"http_proxy": "http://proxy", "no_proxy": "10.77.0.1,10.77.0.2"}
            },
            "remove the proxy": {"env": {}},
        },
    ),
    "an interface of the job": lambda _: (
        World(env={"GLOO_SOCKET_IFNAME": "ib7"}),
        {"remove GLOO_SOCKET_IFNAME from job_env or job_node_env: the plan sets it for each node": {"env": {}}},
    ),
    "an interface that the plan does not choose": lambda _: (
        World(env={"TP_SOCKET_IFNAME": "ib7"}),
        {"remove TP_SOCKET_IFNAME from job_env or job_node_env": {"env": {}}},
    ),
    "a head that does not answer": lambda _: (
        linked(silent, eth0, network="10.66.0.0/16").having(
            finds=lambda plan: obstacles.reach_findings(plan) if plan["node_rank"] else []
        ),
        {"set job_network": {"network": WIDE}},
    ),
    "a port in use": lambda folder: (
        occupied(folder),
        {
            "set job_port: auto": AS_WRITTEN,
            "another port": {"port": free_port()},
            "end that process": lambda world: world.holder.close(),
        },
    ),
    "no network": lambda _: (linked(eth0, network="10.77.0.1/16"), {"correct job_network": {"network": WIDE}}),
    "link-local alone": lambda _: (
        linked(only_local, network="fe80::/64"),
        {
            "give an interface of every node another address, and set job_network to its network": together(
                on_both(local), {"network": WIDE}
            )
        },
    ),
    "clocks": lambda _: (
        World(3).having(clocks={"n1": 0.0, "n2": 0.0, "n3": 60.0}),
        {"job_health_gate: false starts all the same": AS_WRITTEN},
    ),
}
