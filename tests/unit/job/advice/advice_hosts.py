"""Launches with findings about hosts and devices, and what readers do for each part of the advice."""

from __future__ import annotations

from advice_networks import silent
from advice_readers import AS_WRITTEN, USE_DIRECT, leave_out, of_world, together
from ansible.module_utils.trainyard.job.plan import busy_devices
from ansible.module_utils.trainyard_node.job.plan import obstacles
from launch_world import ME, World, linked


class Clock:
    """The clock of launches that wait for devices."""

    now = 0.0

    def sleep(self, seconds):
        self.now += seconds


CLOCK = Clock()


def in_use(node_plan):
    """Return who has device 0 of n1 for 150 s: jobs of ours, another program, and who waits for it."""
    if node_plan["host"] != "n1" or 0 not in node_plan["devices"] or CLOCK.now >= 150:
        return []
    if node_plan["busy_devices"] == busy_devices.SHARE:
        return []
    holder = "process 7 (python3) of ann holds 126 GiB of GPU 0"
    return busy_devices.findings({"zoo-1": [0]}, [holder], ["abc-1"])


def of_witness(node_plan):
    user = ME if node_plan["host"] != "n3" else "no-such-user"
    return obstacles.witness_findings(node_plan, user) if "witness" in node_plan and not node_plan["devices"] else []


def with_gpus(counts, **job):
    """Return a launch on hosts with so many devices each."""
    world = World(len(counts), **job)
    for number, (name, count) in enumerate(zip(world.facts, counts, strict=True)):
        world.facts[name] |= World(number + 1, gpus=count).facts[name]
    return world


def of_fourth_host(world):
    """Have a last host with as many devices as the others."""
    name = [*world.facts][-1]
    world.facts[name] |= World(len(world.facts), gpus=2).facts[name]


CASES = {
    # Hosts and numbers of nodes.
    "no host": lambda _: (
        World(hosts="gpus").having(given={"known": ["n1", "n2"]}),
        {
            "set job_hosts: all for every host of the inventory": AS_WRITTEN,
            "to a group of it": {"hosts": "compute"},
            "correct -i": lambda world: world.groups.update(gpus=["n1", "n2"]),
        },
    ),
    "no host in the inventory": lambda _: (
        World(hosts="gpus").having(given={"known": []}),
        {
            "correct job_hosts": {"hosts": "compute"},
            "the inventory (-i)": lambda world: world.groups.update(gpus=["n1", "n2"]),
        },
    ),
    "too many nodes": lambda _: (
        World(3, nodes=3).having(groups={"compute": ["n1", "n2"], "all": ["n1", "n2", "n3"]}),
        {"lower job_nodes": {"nodes": 2}, "choose another group with job_hosts": {"hosts": "all"}},
    ),
    "a limit": lambda _: (
        World().having(given={"limit": "n1"}),
        {
            "launch without --limit": lambda world: world.given.clear(),
            "job_hosts and job_nodes choose the hosts": together(lambda world: world.given.clear(), {"nodes": 1}),
        },
    ),
    "too many processes": lambda _: (
        World(2, nodes=1, ranks_per_node=200),
        {
            "lower job_ranks_per_node; job_nodes or job_hosts bring more nodes for as many ranks": together(
                {"ranks_per_node": 100, "nodes": 2}
            )
        },
    ),
    "spares without a node": lambda _: (
        World(3, spares=2, max_restarts=1).having(groups={"compute": ["n1", "n2"], "all": ["n1", "n2", "n3"]}),
        {"lower job_spares": {"spares": None}, "choose a larger group with job_hosts": {"hosts": "all"}},
    ),
    "a spare for one node": lambda _: (
        World(3, nodes=1, spares=1, max_restarts=1).having(given={"known": ["n1", "n2", "n3", "w"]}),
        {
            "raise job_nodes": {"nodes": 2},
            "job_spares in a group of three hosts or more (job_hosts)": {"spares": 2},
            "name a job_witness": {"witness": "w"},
            "leave job_spares out": AS_WRITTEN,
        },
    ),
    "a spare with another number of devices": lambda _: (
        with_gpus([2, 2, 2, 1], spares=1, max_restarts=1),
        {"set job_ranks_per_node: 1": AS_WRITTEN, "leave one of the two out": leave_out("n4")},
    ),
    "a spare of three hosts with another number of devices": lambda _: (
        with_gpus([2, 2, 1], spares=1, max_restarts=1),
        {
            "set job_ranks_per_node: 1": AS_WRITTEN,
            "have another host in place of one of the two (job_hosts)": of_fourth_host,
        },
    ),
    "a spare of a number of nodes with another number of devices": lambda _: (
        with_gpus([2, 2, 2, 1], nodes=3, spares=1, max_restarts=1),
        {
            "set job_ranks_per_node: 1": AS_WRITTEN,
            "have another host in place of one of the two (job_hosts)": of_fourth_host,
        },
    ),
    "checkpoints that a spare does not see": lambda _: (
        World(3, spares=1, max_restarts=1, checkpoints="/data/saved").having(shared="/shared", warned=True),
        {
            "name a folder on a shared disk": {"checkpoints": "/shared/saved"},
            # Only the program knows how; it leaves the folder to each rank.
            "have each rank go on from what others have saved": {"checkpoints": None},
        },
    ),
    "a witness of one node": lambda _: (
        World(3, nodes=1, witness="w", max_restarts=1).having(given={"known": ["n1", "n2", "n3", "w"]}),
        {"raise job_nodes": {"nodes": 2}, "set job_spares": {"spares": 1}, "leave job_witness out": AS_WRITTEN},
    ),
    "a witness that trains": lambda _: (
        World(3, witness="n3", max_restarts=1).having(given={"known": ["n1", "n2", "n3", "w"]}),
        {"choose another host": {"witness": "w"}, "leave it out of the job with job_hosts or job_nodes": {"nodes": 2}},
    ),
    "an unknown witness": lambda _: (
        World(2, witness="v", max_restarts=1).having(given={"known": ["n1", "n2", "w"]}),
        {
            "correct job_witness": {"witness": "w"},
            "add that host to the inventory, outside of the group of job_hosts": of_world(
                given={"known": ["n1", "n2", "v"]}
            ),
        },
    ),
    "a witness without a user": lambda _: (
        World(2, witness="n3", max_restarts=1).having(given={"known": ["n1", "n2", "n3", "w"]}, finds=of_witness),
        {"choose another job_witness": {"witness": "w"}},
    ),
    "a witness that does not reach the nodes": lambda _: (
        linked(silent, witness="w", network="10.66.0.0/16", max_restarts=1).having(
            given={"known": ["n1", "n2", "w", "v"]},
            finds=lambda plan: obstacles.witness_findings(plan, ME) if plan["host"] == "w" else [],
        ),
        {"choose another job_witness": {"witness": "v"}},
    ),
    "fewer nodes than it may have": lambda _: (
        World(3, min_nodes=3, max_restarts=1).having(groups={"compute": ["n1", "n2"], "all": ["n1", "n2", "n3"]}),
        {
            "lower job_min_nodes": {"min_nodes": 1},
            "choose more hosts with job_nodes and job_hosts": {"hosts": "all", "nodes": 3},
        },
    ),
    "a fixed number of nodes": lambda _: (
        World(2, min_nodes=1, max_restarts=1, command=["python", "train.py", "--nnodes", "2"]),
        {
            "correct that": {"command": ["python", "train.py"]},
            "leave job_min_nodes out: job_spares keep the numbers": AS_WRITTEN,
        },
    ),
    # Devices.
    "devices that a node has not": lambda _: (
        World(gpus=2, devices=[0, 5]),
        {"correct job_devices": {"devices": [0, 1]}, "set it to auto": {"devices": "auto"}},
    ),
    "devices that do not answer": lambda _: (
        World(1, each={"n1": {"accelerators": {"vendor": "nvidia", "devices": [], "problems": ["no answer"]}}}),
        {"set job_devices: none to run on the CPU": AS_WRITTEN},
    ),
    "fewer devices than processes": lambda _: (
        with_gpus([2, 1], ranks_per_node=2),
        {"lower job_ranks_per_node": {"ranks_per_node": 1}, "leave the node out": leave_out("n2")},
    ),
    "other numbers with torchrun": lambda _: (
        with_gpus([2, 1], launcher="torchrun"),
        {"set job_ranks_per_node: 1": AS_WRITTEN, **USE_DIRECT},
    ),
    "other numbers with msrun": lambda _: (
        with_gpus([2, 1], launcher="msrun"),
        {"set job_ranks_per_node: 1": AS_WRITTEN, "use job_launcher: mindspore": AS_WRITTEN},
    ),
    "other numbers with OneFlow": lambda _: (
        with_gpus([2, 1], launcher="oneflow"),
        {"set job_ranks_per_node: 1": AS_WRITTEN, **USE_DIRECT},
    ),
    "devices in use": lambda _: (
        World(2, gpus=2, nodes=1, ranks_per_node=1).having(finds=in_use),
        {
            "wait for them (job_busy_devices: wait)": AS_WRITTEN,
            "choose others with job_devices": {"devices": [1]},
            "other hosts": leave_out("n1"),
            "start beside them (job_busy_devices: share)": AS_WRITTEN,
        },
    ),
    "devices of another job": lambda _: (
        World(2, gpus=2, nodes=1, ranks_per_node=1).having(finds=in_use),
        {
            "wait for them (job_busy_devices: wait)": AS_WRITTEN,
            "choose others with job_devices": {"devices": [1]},
            "other hosts": leave_out("n1"),
            "stop that job: playbooks/stop.yml with job_id zoo-1": of_world(finds=lambda _: []),
        },
    ),
    "a wait that was too short": lambda _: (
        World(2, gpus=2, nodes=1, ranks_per_node=1, busy_devices="wait", wait_timeout=60).having(finds=in_use),
        {
            "raise job_wait_timeout": {"wait_timeout": 600},
            "choose other hosts": leave_out("n1"),
            "job_devices": {"devices": [1]},
            "start beside others with share": {"busy_devices": "share"},
        },
    ),
}
