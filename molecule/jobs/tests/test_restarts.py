"""Restarts: a rank that fails, a node that is lost and comes back; always all together."""

import base64
import hashlib
import hmac
import json
import re

import pytest
from lab_jobs import SCENARIO, WORKER, wait_until

STEPS = ["python3", "worker.py", "--resume", "--steps"]
SECRETS = {name: f"correct-horse-{name.lower()}-8f1c" for name in ("SIGNS", "HOOK", "RANKS")}


class Webhook:
    """A receiver of events on a node, which answers 500 to each event first."""

    def __init__(self, host, address):
        self.host, self.address, self.file = host, address, "/run/told.jsonl"
        code = base64.b64encode((SCENARIO / "receiver.py").read_bytes()).decode()
        host.check_output(f"echo {code} | base64 -d > /run/receiver.py; rm -f {self.file}")
        host.check_output(f"systemd-run --unit=webhook python3 /run/receiver.py {address} 8099 {self.file}")

    def told(self):
        """Return the requests in the order in which they came."""
        return [json.loads(line) for line in self.host.check_output(f"cat {self.file}").splitlines()]

    def end(self):
        # The node may have been started again meanwhile.
        self.host.run("systemctl stop webhook")


@pytest.fixture(scope="module")
def webhook(nodes, node_vars):
    made = Webhook(nodes["n3"].host, node_vars["n3"]["ansible_host"])
    yield made
    made.end()


@pytest.fixture(scope="module")
def again(play, nodes, webhook, scheduler):
    """A job whose rank 1 is killed, and what ran before; over ssh it tells a webhook of itself, and has secrets."""
    of_env = {name: f"{{{{ lookup('env', '{name}') }}}}" for name in SECRETS}
    over_ssh = {
        "job_events": [{"url": f"http://{webhook.address}:8099/{of_env['HOOK']}"}],
        "job_events_secret": of_env["SIGNS"],
        "job_secret_env": {"WORKER_SECRET": of_env["RANKS"]},
    }
    with pytest.MonkeyPatch.context() as environment:
        for name, value in SECRETS.items():
            environment.setenv(name, value)
        run = play.launch(
            WORKER,
            **(scheduler or over_ssh),
            job_name="again",
            job_nodes=3,
            job_max_restarts=2,
            job_command=[*STEPS, "40", "--restarts", "1"],
        )
    run.trains()
    before = {name: nodes[name].processes(run.job_id) for name in ("n1", "n2", "n3")}
    nodes["n2"].kill_rank(run.job_id, 1)
    run.wait_for(r"0:\d\d:\d\d   rank 1 on n2: killed by SIGKILL, so the whole job starts again")
    return run.wait(), before


@pytest.mark.slurm
def test_a_killed_rank_restarts_the_whole_job_which_goes_on(again, scheduler, left):
    run, before = again
    run.shows(0, "  started again 1 of at most 2 times")
    assert [entry["failure"]["rank"] for entry in run.summary["restarts"]] == [1]
    # In Slurm it is the same allocation, without a new place in the queue.
    assert ("engine" in run.summary) == bool(scheduler) and "pending (BeginTime)" not in run.output
    for rank in range(3):
        first, mark, second = run.log(rank).partition("--- started again, attempt 2 ---\n")
        assert mark, run.log(rank)
        # Each goes on where it was, and all of them were ended.
        steps = [int(step) for step in re.findall(r"^step (\d+)/40", first + second, re.MULTILINE)]
        assert steps[-1] == 40 and len(steps) <= 41
        pids = re.findall(r"pid (\d+)", first + second)
        assert len(pids) == 2 and int(pids[0]) in before[f"n{rank + 1}"]
    assert left(run.job_id) == {}


@pytest.mark.ssh
def test_a_job_tells_a_webhook_what_becomes_of_it(again, webhook):
    run, _ = again
    told = webhook.told()
    events = [json.loads(each["body"]) for each in told]
    # Each was refused once, and sent again as it was before the next one.
    assert [each["status"] for each in told] == [500, 200] * (len(told) // 2)
    assert events[::2] == events[1::2]
    kinds = ["started", "first_step", "restart", "ended"]
    assert [event["event"] for event in events[::2]] == kinds
    assert {event["job_id"] for event in events} == {run.job_id}
    assert [event["time"] for event in events] == sorted(event["time"] for event in events)
    restart, ended = events[4], events[6]
    assert (restart["host"], restart["rank"], restart["signal"]) == ("n2", 1, 9)
    assert (ended["state"], ended["restarts"], ended["ranks_running"]) == ("succeeded", 1, 0)
    (stood,) = run.summary["events"]
    assert (stood["to"], stood["sent"], stood["waiting"], stood["lost"]) == (f"webhook {webhook.address}", 4, 0, 0)


@pytest.mark.ssh
def test_what_a_webhook_is_told_is_signed_and_holds_no_secret(again, webhook, nodes):
    run, _ = again
    for each in webhook.told():
        assert each["path"] == f"/{SECRETS['HOOK']}"
        signed = f"{each['headers']['X-Trainyard-Timestamp']}.{each['body']}".encode()
        signature = hmac.new(SECRETS["SIGNS"].encode(), signed, hashlib.sha256).hexdigest()
        assert each["headers"]["X-Trainyard-Signature"] == f"sha256={signature}"
        assert not [name for name, value in SECRETS.items() if value in each["body"]]
    kept = [path.read_bytes() for path in run.folder.rglob("*") if path.is_file()]
    assert kept and not [name for name, value in SECRETS.items() if any(value.encode() in text for text in kept)]
    assert not [name for name, value in SECRETS.items() if value in run.output]
    where = f"/var/lib/trainyard/jobs/{run.job_id}"
    found = nodes["n1"].host.run(
        f"cd {where} && find . -name '*.json'; grep -rlE '{'|'.join(SECRETS.values())}' {where}"
    )
    assert "cluster.json" in found.stdout and "events.json" not in found.stdout and where not in found.stdout


@pytest.fixture(scope="module")
def lost(play, nodes, node_vars, tmp_path_factory):
    """Two jobs whose n3 is killed and comes back, one's head and the other's last; then the other's n2 is cut off."""
    inventory = tmp_path_factory.mktemp("head") / "head.yml"
    inventory.write_text("head_lost: {hosts: {n3: , n1: }}\n")
    headless = play.launch(
        WORKER,
        "-i",
        str(inventory),
        job_hosts="head_lost",
        job_name="headless",
        job_max_restarts=1,
        job_command=[*STEPS, "40", "--restarts", "1"],
    )
    command = [*STEPS, "60", "--restarts", "2"]
    run = play.launch(WORKER, job_name="lost", job_nodes=3, job_max_restarts=3, job_command=command)
    run.trains()
    headless.trains()
    nodes["n3"].podman("kill")
    try:
        run.wait_for(r"node n3: no report for \d\d s, so the whole job starts again")
        # Nothing runs on the others until it is back.
        wait_until(lambda: not nodes["n2"].ranks(run.job_id), "n2 ends its rank")
        wait_until(lambda: not nodes["n1"].ranks(headless.job_id), "n1 ends its rank")
    finally:
        nodes["n3"].boot(node_vars["n3"]["ansible_host"])
    headless.wait_for("node n3: shut down or restarted, so the whole job starts again")

    def all_again():
        cluster = nodes["n1"].cluster(run)
        restarts = cluster["restarts"]
        return restarts["whole"] == 1 and not restarts["gathering"] and cluster["ranks_running"] == 3

    wait_until(all_again, "all ranks run again")
    route = nodes["n2"].host.check_output("ip route show default")
    nodes["n2"].host.check_output("ip link set eth0 down")
    try:
        run.wait_for(r"node n2: no report for \d\d s, so the whole job starts again")
        wait_until(lambda: not nodes["n2"].ranks(run.job_id), "n2 ends its own rank")
    finally:
        nodes["n2"].host.check_output(f"ip link set eth0 up && ip route replace {route}")
    return run.wait(), headless.wait()


def test_lost_nodes_take_part_again(lost, left):
    run, _ = lost
    run.shows(0, "  started again 2 of at most 3 times")
    assert [entry["failure"]["host"] for entry in run.summary["restarts"]] == ["n3", "n2"]
    assert all("step 60/60" in run.log(rank) for rank in range(3))
    assert left(run.job_id) == {}


def test_a_head_that_was_killed_takes_part_again(lost, left):
    _, run = lost
    run.shows(0, "  started again 1 of at most 1 time")
    assert all("step 40/40" in run.log(rank) for rank in range(2))
    assert left(run.job_id) == {}


def test_units_that_outlive_a_boot_go_with_the_job(lost, nodes):
    for name in ("n1", "n2", "n3"):
        found = nodes[name].host.run("find /etc/systemd/system -name 'trainyard-*'")
        assert (found.rc, found.stdout) == (0, "")
