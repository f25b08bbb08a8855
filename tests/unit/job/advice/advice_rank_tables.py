"""Launches with findings about NPUs and rank tables, and what readers do for each part of the advice."""

from __future__ import annotations

from advice_readers import AS_WRITTEN, have, leave_out, of_world, on_both, together
from launch_world import eth0, eth1, npus, write_table


def another_device_ip(table):
    table["server_list"][0]["device"][0]["device_ip"] = "192.0.2.7"


def another_host_ip(table):
    for number, entry in enumerate(table["server_list"], 1):
        entry["host_ip"] = f"10.88.0.{number}"


def two_networks(world):
    on_both(eth0, eth1)(world)
    return world


CASES = {
    # Rank tables.
    "no NPU on a node": lambda _: (
        have(n2={"npu": None, "accelerators": {}})(world := npus(3)) or world,
        {"correct job_devices or job_hosts": leave_out("n2"), "choose another job_launcher": {"launcher": "direct"}},
    ),
    "no NPU for the job": lambda _: (
        npus(devices="none"),
        {
            "correct job_devices or job_hosts": {"devices": "auto"},
            "choose another job_launcher": {"launcher": "direct"},
        },
    ),
    "other chips": lambda _: (
        have(n3=npus(3, chip="a3").facts["n3"])(world := npus(3)) or world,
        {"use nodes of one kind (job_hosts): a rank table is for one": leave_out("n3")},
    ),
    "a device that is not healthy": lambda _: (
        npus(changes={"device7": {"health": "Alarm"}}),
        {"leave the device out with job_devices": {"devices": [0, 1, 2, 3, 4, 5, 6]}},
    ),
    "one of the devices that links join": lambda _: (
        npus(1, chip="910", changes={"device7": {"health": "Alarm"}}),
        {"choose others with job_devices: 1, 2, 4 or 8 devices": {"devices": [0, 1, 2, 3]}},
    ),
    "a device of a server that needs all": lambda _: (
        have(n3=npus(3, chip="910", changes={"device7": {"health": "Alarm"}}).facts["n3"])(world := npus(3, chip="910"))
        or world,
        {"leave the node out": leave_out("n3")},
    ),
    "a device whose link is down": lambda _: (
        npus(changes={"device7": {"link": "down"}}),
        {"leave the device out with job_devices": {"devices": [0, 1, 2, 3]}},
    ),
    "a variable of the table": lambda _: (
        npus(env={"RANK_TABLE_FILE": "/x.json"}),
        {"remove RANK_TABLE_FILE from job_env; job_devices chooses the devices": {"env": {}}},
    ),
    "too few devices in DEVICE_NUM": lambda _: (
        npus(env={"DEVICE_NUM": 4}),
        {
            "leave DEVICE_NUM out": {"env": {}},
            "set the devices of a server or ranks of the job, as the program takes it": {"env": {"DEVICE_NUM": 16}},
        },
    ),
    "one HCCL_IF_IP for all": lambda _: (
        npus(env={"HCCL_IF_IP": "10.77.0.1"}),
        {
            "remove HCCL_IF_IP from job_env: job_network chooses the network": {"env": {}},
            "set it in job_node_env of each host": together(
                {"env": {}}, of_world(env={f"n{number}": {"HCCL_IF_IP": f"10.77.0.{number}"} for number in (1, 2)})
            ),
        },
    ),
    "a set of devices that the wiring does not join": lambda _: (
        npus(1, chip="910", devices=[0, 1, 4, 5]),
        {
            "use a set of devices that the 910's links join: set job_devices": {"devices": [0, 1, 2, 3]},
            "job_ranks_per_node": {"devices": "auto", "ranks_per_node": 4},
        },
    ),
    "a set of devices that HCCL may take": lambda _: (
        npus(1, chip="910", devices=[0, 4]),
        {
            "use a set of devices that the 910's links join: set job_devices": {"devices": [0, 1]},
            "job_ranks_per_node": {"devices": "auto", "ranks_per_node": 2},
            "job_any_device_set: true tries it all the same": AS_WRITTEN,
        },
    ),
    "no rank table": lambda folder: (
        npus(rank_table="/proc/nowhere"),
        {
            "correct job_rank_table (a relative path counts from the job file's folder, then from the project's)": {
                "rank_table": write_table(folder)
            },
            "leave it out": {"rank_table": None},
        },
    ),
    "spares beside a table": lambda folder: (
        npus(3, rank_table=write_table(folder), spares=1, max_restarts=1),
        {
            "leave job_rank_table out, as the launcher then builds the table": AS_WRITTEN,
            "leave job_spares out": together({"spares": None}, leave_out("n3")),
        },
    ),
    "a node that a table lacks": lambda folder: (
        npus(3, rank_table=write_table(folder)),
        {
            "choose the table's nodes with job_hosts, job_nodes and job_network": {"nodes": 2},
            "correct the table": lambda _: write_table(folder, nodes=3),
        },
    ),
    "a server of a table that is no node": lambda folder: (
        npus(3, rank_table=write_table(folder, nodes=3), nodes=2),
        {
            "run the job on these servers, too (job_hosts, job_nodes)": {"nodes": 3},
            "take them out of the table": lambda _: write_table(folder),
        },
    ),
    "more ranks in a table": lambda folder: (
        npus(2, rank_table=write_table(folder, nodes=3)),
        {
            "correct the table": lambda _: write_table(folder),
            "leave job_rank_table out: the launcher then builds it": AS_WRITTEN,
        },
    ),
    "other devices in a table": lambda folder: (
        npus(rank_table=write_table(folder, devices=[0, 1, 2, 3])),
        {"set job_devices: [0, 1, 2, 3]": AS_WRITTEN, "correct the table": lambda _: write_table(folder)},
    ),
    "another device_ip in a table": lambda folder: (
        npus(rank_table=write_table(folder, change=another_device_ip)),
        {
            "generate the table again": lambda _: write_table(folder),
            "leave job_rank_table out: the launcher then builds it": AS_WRITTEN,
        },
    ),
    "another host_ip in a table": lambda folder: (
        two_networks(npus(rank_table=write_table(folder, change=another_host_ip))),
        {
            "set job_network to the network of host_ip": {"network": "10.88.0.0/16"},
            "correct the table": lambda _: write_table(folder),
        },
    ),
}
