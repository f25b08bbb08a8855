"""A job whose head is lost is watched to its end, with real monitors that choose the new head."""

from concurrent.futures import ThreadPoolExecutor

from ansible.module_utils.trainyard.job.run.wire.answers import checked
from ansible.module_utils.trainyard_controller.job import heads, watching
from ansible.module_utils.trainyard_node import agent
from ansible.module_utils.trainyard_node.job.run.ranks import process_table
from job_cluster import PATIENCE_S, wait_for
from job_samples import make_job, make_plan, member, summary_of
from test_leader import SILENT


class Controller:
    """Asks the agents of a cluster on this machine; hosts that are `down` give no answer."""

    def __init__(self, cluster, max_restarts=2, spares=1):
        self.nodes = {node.spec["host"]: node for node in cluster.nodes}
        job = make_job(launcher="direct", max_restarts=max_restarts, spares=spares)
        plan = make_plan(job, [member(number) for number in range(len(self.nodes))]).as_dict()
        self.plan = {**plan, "job_id": "job", "job_dir": "/job"}
        self.down, self.shown = set(), []

    def ask(self, question, own, limit_s=0.0):
        with ThreadPoolExecutor() as pool:
            return dict(zip(own, pool.map(lambda host: self._answer(question, host, dict(own[host])), own)))

    def _answer(self, question, host, about):
        if host in self.down:
            return SILENT
        # On one machine each node has a job of its own.
        own = {"job_id": self.nodes[host].job_id, "job_dir": str(self.nodes[host].dir)}
        if question == "running":
            found = agent.running(jobs=[own])
            names = {self.nodes[host].job_id: "job"}
            running = {names[name]: line for name, line in found["running"].items()}
            return checked(question, {"running": running, "ended": [names[name] for name in found["ended"]]}, host)
        return checked(question, agent.QUESTIONS[question](**{**about, **own}), host)

    def watch(self):
        job = watching.OverSsh(self.plan, self.ask)
        return watching.follow(job, lambda _: None, self.shown.append)

    def saw(self, text):
        return any(text in line for line in self.shown)


def test_a_job_whose_head_is_lost_is_watched_to_its_end(cluster):
    job = cluster(["train"], ["train"], ["train"], spares=1, max_restarts=2, rejoin_s=60).start()
    controller = Controller(job)
    n1 = controller.nodes["n1"]
    with ThreadPoolExecutor(1) as pool:
        watch = pool.submit(controller.watch)
        wait_for(lambda: controller.saw("3/3 ranks running"), "progress")
        wait_for(lambda: controller.nodes["n2"].read("succession.json"), "n2 to have a copy of the job's state")
        controller.down.add("n1")
        n1.monitor.kill()
        n1.monitor.wait()
        process_table.end(n1.job_id, grace_s=0.0)
        wait_for(lambda: controller.saw("n2 leads the job now, in the place of n1"), "the new head")
        assert controller.saw("the other nodes choose a new head")
        lines, unknown = heads.running([controller.plan], controller.ask)
        assert "/3 ranks running" in lines["job"] and unknown == {}
        for node in job.nodes:
            node.go()
        assert watch.result() == ""
    assert controller.saw("so the whole job starts again; n4 takes the place of n1")
    wait_for(lambda: heads.running([controller.plan], controller.ask) == ({}, {}), "the monitors to end")
    job.all_ended(but=["n1", "n2"])
    controller.nodes["n2"].monitor.wait(PATIENCE_S)
    found = controller.ask("state", {host: {} for host in controller.nodes})
    summary = summary_of(
        controller.plan, {host: each for host, each in found.items() if "known" in each}, {"n1": "down"}
    )
    assert (summary["state"], summary["takeover"]["head"], summary["takeover"]["planned"]) == ("succeeded", "n2", "n1")
    assert [(node["host"], node["state"]) for node in summary["nodes"]] == [
        *((host, "ended") for host in ("n4", "n2", "n3")), ("n1", "unreachable")]  # fmt: skip
    # The earlier head is back, with what it left.
    controller.down.clear()
    found = controller.ask("state", {host: {} for host in controller.nodes})
    assert summary_of(controller.plan, found)["state"] == "succeeded"
