"""The nodes of a job as its head sees them, without processes or sockets, on a clock of the test's own."""

from __future__ import annotations

import itertools
import time

from ansible.module_utils.trainyard.base.shapes import misfit
from ansible.module_utils.trainyard.job.run.decide.attempt_watch import Local
from ansible.module_utils.trainyard.job.run.decide.head_state import HeadState, cluster_state
from ansible.module_utils.trainyard.job.run.decide.orders import Now, PollCheckpoints
from ansible.module_utils.trainyard.job.run.lead.succession import copy_shape
from ansible.module_utils.trainyard.job.run.wire import answers, messages

EPOCH_S = time.time()


def failed(host, rank, at=10.0, /, **how):
    """The failure of a rank that ended with status 1, as its node reports it."""
    record = {"kind": "exit", "host": host, "process": f"rank{rank}", "ranks": [rank], "rank": rank, "exit_code": 1}
    return {**record, "signal": None, "result": "exit-code", "time": EPOCH_S + at, **how}


class SimulatedJob:
    """Nodes n1 (the head), n2, ... with one rank each, then spares. All report twice a second and do as they are told.

    `changes` are fields of the reports of one node, by host; a node in `silent` reports nothing, one in `stuck` does
    not follow the head. `orders` are all orders so far, `starts` the attempts that began. With `min_nodes` the job may
    go on with fewer; `left` has the hosts that run no rank because of that.
    """

    def __init__(self, nodes=2, spares=0, previous=None, min_nodes=0, **plan):
        hosts = [f"n{number}" for number in range(1, nodes + spares + 1)]
        self.plan = {
            "job_id": "j-1", "host": "n1", "node_rank": 0, "hosts": hosts[:nodes], "spares": hosts[nodes:],
            "world_size": nodes, "silent_after_s": 15, "timeout_s": 100_000, "max_restarts": 0, "rejoin_s": 300, **plan,
        }  # fmt: skip
        if min_nodes:
            self.plan["fewer"] = {"min_nodes": min_nodes, "ranks": [1] * nodes}
        self.hosts, self.now, self.left = hosts, 1000.0, set()
        self.state = HeadState(self.plan, self.time(), previous)
        self.changes = {host: {} for host in hosts}
        self.attempts = {host: self.state.restarts.attempts(host) for host in hosts}
        self.ready_for, self.places = dict.fromkeys(hosts), dict.fromkeys(hosts)
        self.silent, self.stuck, self.orders, self.missed = set(), set(), [], []
        self.connected = set(hosts[1:])
        self.starts, self._went, self._decisions = [], self.state.restarts.go, itertools.count()

    def time(self):
        return Now(self.now, EPOCH_S + self.now - 1000.0)

    def report(self, host):
        running = (host in self.plan["hosts"] or self.places[host] is not None) and host not in self.left
        return {
            "host": host, "ranks_running": int(running), "done": False, "idle": not running, "rankless": 0,
            "failures": [], "metrics": {}, "loss_not_a_number": None, "attempts": self.attempts[host],
            "ready_for": self.ready_for[host], "cannot_write": None, "place": self.places[host],
            "time": self.time().epoch_s, **self.changes[host],
        }  # fmt: skip

    def send(self, host, message):
        """Send a message of a node to the head, which checks it as its monitor does."""
        messages.check_from_node(message, host, self.plan["world_size"], self.state.budget)
        self.state.receive(host, message, self.time())

    def kill(self, host="n2", rank=1, **how):
        """Have a rank be killed; return its failure."""
        how = {"exit_code": None, "signal": 9, "result": "signal", **how}
        record = failed(host, rank, self.now - 1000.0, **how)
        self.changes[host] = {"failures": [record], "done": True, "ranks_running": 0}
        return record

    def decide(self):
        """Have the head decide once; return the orders."""
        orders = self.state.decide(self.time(), Local(self.connected, self.missed))
        if PollCheckpoints() in orders:
            self.orders.append(PollCheckpoints())
            orders = self.state.decide(self.time(), Local(self.connected, self.missed, polled=True))
        self.orders += orders
        if self.state.restarts.go and not self._went:
            self.starts.append(self.state.restarts.attempts("n1")[""])
        self._went = self.state.restarts.go
        # Between orders little changes, and to check each state takes longer than all the rest.
        if orders or next(self._decisions) % 8 == 0:
            assert misfit(cluster_state(self.state, self.time()), answers.CLUSTER) == ""
            wrong = misfit(self.state.copy(), copy_shape(self.hosts, self.state.budget))
            assert not wrong, wrong
        return orders

    def step(self):
        """Have all nodes report, the head decide, and the nodes follow."""
        for host in self.hosts:
            if host not in self.silent:
                self.send(host, {"report": self.report(host)})
        self.decide()
        for host in self.hosts:
            if host not in self.silent and host not in self.stuck:
                self._follow(host, self.state.message_for(host, self.time()))

    def _follow(self, host, message):
        if "end" in message:
            return
        self.places[host] = message.get("place", self.places[host])
        self.ready_for[host] = message["attempts"]
        if message["attempts"] != self.attempts[host] and message["go"]:
            self.attempts[host] = message["attempts"]
            place = self.hosts.index(host) if self.places[host] is None else self.places[host]
            self.left = self.left | {host} if place in message.get("absent", ()) else self.left - {host}
            # A new attempt begins without failures.
            self.changes[host] = {}
        if message["stacks"]:
            self.send(host, {"stacks": {"number": message["stacks"], "ranks": []}})

    def run(self, seconds):
        """Let so many seconds pass, or less where the job ends."""
        until = self.now + seconds
        self.step()
        while self.now < until and not self.end:
            self.now += 0.5
            self.step()
        return self

    @property
    def end(self):
        return self.state.end

    @property
    def history(self):
        return self.state.restarts.history

    def held(self):
        """Return the line of cluster.json that says what the job waits for."""
        return cluster_state(self.state, self.time())["held"]
