"""Jobs under mpirun on real nodes: training, where ranks go and what they find, every way to fail, nothing left."""

import hashlib
import re

import pytest
from lab_jobs import PROJECT, WORKER, wait_until

DIGITS = PROJECT / "jobs/mpirun-digits.yml"
SECRET = "do-not-show-5a1f"  # noqa: S105 - what no log may show
MPIRUN = {"job_launcher": "mpirun"}


def process_named(node, job_id, name):
    """Process id of the job's one process with this name on a node."""
    (found,) = [pid for pid in node.processes(job_id) if node.host.check_output(f"cat /proc/{pid}/comm") == name]
    return found


def environment(node, pid):
    """Environment of a process, each variable with | after it; "" when the process is gone.

    Read as the training user: root in a container may not read what belongs to others.
    """
    return node.host.run(f"runuser -u train -- xargs -0 -a /proc/{pid}/environ printf '%s|'").stdout


@pytest.fixture(scope="module")
def two(play, nodes):
    """A training of three ranks on three nodes, and beside it two ranks on each of two nodes that show what they find.

    The second one is looked at while it runs, and then stopped.
    """
    training = play.launch(DIGITS, job_nodes=3)
    shown = play.launch(
        WORKER, **MPIRUN, job_nodes=2, job_ranks_per_node=2, job_mpi_placement="hosts",
        job_secret_env={"WORKER_SECRET": SECRET}, job_env={"ODD": "a b;c='d'\n$e"},
    )  # fmt: skip
    shown.trains()
    seen = {}
    for name in ("n1", "n2"):
        host = nodes[name].host
        pids = nodes[name].processes(shown.job_id)
        seen[name] = {
            "argv": host.check_output("cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' ' '; true"),
            "names": [host.check_output(f"cat /proc/{pid}/comm") for pid in pids],
            "env": [environment(nodes[name], pid) for pid in pids],
        }
    play("playbooks/stop.yml", job_id=shown.job_id).expect(0)
    return training.wait(), shown.wait(), seen


def test_torch_trains_to_equal_parameters_on_all_ranks(two, left):
    run, _, _ = two
    assert run.trained(3).summary["metrics"]["step"] == run.summary["metrics"]["steps"] > 0
    assert left(run.job_id) == {}


def test_ranks_fill_the_nodes_in_their_order_and_write_their_logs_there(two, nodes):
    training, shown, _ = two
    for run, expected in ((training, ["0", "1", "2"]), (shown, ["0 1", "2 3"])):
        for name, ranks in zip(nodes, expected):
            logs = nodes[name].host.check_output(f"cd {run.job_dir}/hosts/*/logs && ls rank_*").split()
            assert logs == [f"rank_{rank}.log" for rank in ranks.split()], name
        plan = run.file("plan.json")
        assert [len(node["processes"]) for node in plan["nodes"]] == [1] + [0] * (len(expected) - 1)
    assert "--hostfile" in training.file("plan.json")["nodes"][0]["processes"][0]["argv"]
    assert "-H" in shown.file("plan.json")["nodes"][0]["processes"][0]["argv"]
    addresses = [node["address"] for node in training.file("plan.json")["nodes"]]
    hostfile = nodes["n1"].host.check_output(f"cat {training.job_dir}/hosts/*/hostfile")
    assert hostfile.splitlines() == [f"{address} slots=1" for address in addresses]


def test_every_rank_finds_its_place_and_what_the_job_says(two):
    _, run, seen = two
    plan = run.file("plan.json")
    for rank in range(4):
        head = f"head {plan['head']['address']}:{plan['head']['port']}"
        assert re.match(rf"rank {rank} of 4 pid \d+ {head}\n", run.log(rank))
        assert f"secret sha256 {hashlib.sha256(SECRET.encode()).hexdigest()}\n" in run.log(rank)
    for name in ("n1", "n2"):
        ranks = [env for env in seen[name]["env"] if "|RANK=" in env or env.startswith("RANK=")]
        # Two ranks with a child each.
        assert len(ranks) == 4
        assert all("ODD=a b;c='d'\n$e|" in env for env in ranks)
        # A login on n2 brings these, and mpirun on n1 has none of them.
        assert not [env for env in ranks if "SSH_CONNECTION=" in env or "XDG_SESSION_ID=" in env]


def test_the_secret_is_in_no_command_line_and_no_record(two):
    _, run, seen = two
    assert not [name for name in seen if SECRET in seen[name]["argv"]]
    written = [path for path in run.folder.rglob("*") if path.is_file() and SECRET.encode() in path.read_bytes()]
    assert written == []
    assert SECRET not in run.output


def test_daemons_on_other_nodes_carry_the_job_id_and_stop_ends_them(two, left):
    _, run, seen = two
    assert "mpirun" in seen["n1"]["names"]
    assert {"orted", "prted"} & set(seen["n2"]["names"])
    assert run.summary["state"] == "stopped"
    assert left(run.job_id) == {}


def test_a_rank_that_fails_is_named_with_host_and_exit_code(play, left):
    raised = play.launch(WORKER, **MPIRUN, job_nodes=3, job_command=["python3", "worker.py", "--raise-on", "1"])
    nothing = "  no process of the job is left on n1, n2, n3"
    raised.shows(2, "  rank 1 on n2 failed first: exit code 7, ValueError: no picture for step 5", nothing)
    assert [line for line in raised.lines if line.startswith("    | ")][-1] == "    | ValueError: no picture for step 5"
    assert left(raised.job_id) == {}


@pytest.fixture(scope="module")
def launchers_killed(play, nodes):
    """Kill mpirun itself under one job, and its daemon on n2 under another."""
    head, daemon = (play.launch(WORKER, **MPIRUN, job_nodes=2, job_name=name) for name in ("head", "daemon"))
    nodes["n1"].table.kill(process_named(nodes["n1"], head.trains().job_id, "mpirun"))
    nodes["n2"].table.kill(process_named(nodes["n2"], daemon.trains().job_id, "orted"))
    return head.wait(), daemon.wait()


@pytest.mark.long
def test_a_killed_mpirun_or_daemon_takes_everything_with_it(launchers_killed, left):
    head, run = launchers_killed
    head.shows(2, "  mpirun on n1 failed first: killed by SIGKILL")
    assert left(head.job_id) == {}
    run.expect(2)
    assert re.search(r"^  mpirun on n1 failed first: exit code \d+$", run.output, re.MULTILINE)
    address = run.file("plan.json")["nodes"][1]["address"]
    assert f"  mpirun lost its daemon on n2 ({address}): killed, or the node is lost" in run.lines
    assert left(run.job_id) == {}


@pytest.fixture(scope="module")
def node_killed(play, nodes, node_vars):
    run = play.launch(WORKER, **MPIRUN, job_nodes=3).trains()
    nodes["n3"].podman("kill")
    try:
        run.wait()
        there = {name: nodes[name].processes(run.job_id) for name in ("n1", "n2")}
    finally:
        nodes["n3"].boot(node_vars["n3"]["ansible_host"])
    return run, there


@pytest.mark.long
def test_a_killed_node_ends_the_job_on_all_others(node_killed, left):
    run, there = node_killed
    assert run.rc == 2, run.output
    assert there == {"n1": [], "n2": []}
    # Whether the network tells mpirun of it before the monitors miss the node depends on how the node is lost.
    told = r"^  ((mpirun then lost its peer: )?mpirun lost its daemon on n3 \(.*|node n3 with rank 2 went silent: .*)$"
    assert re.search(told, run.output, re.MULTILINE), run.output
    wait_until(lambda: left(run.job_id) == {}, f"nothing of {run.job_id} is left")


def test_a_node_that_ssh_does_not_reach_is_found_before_anything_starts(play, nodes, node_vars):
    """The training user's own ssh goes to a port where nobody listens; Ansible's goes on as before.

    MindSpore, which takes mpirun on NPUs and GPUs only, is refused with it.
    """
    address = node_vars["n2"]["ansible_host"]
    mindspore = {"job_packages": ["mindspore"], "job_venv": "mindspore", "job_mpi_parameters": {"plm_rsh_agent": "ssh"}}
    config = "/home/train/.ssh/config"
    nodes["n1"].host.check_output(
        "install -d -o train -g train -m 700 /home/train/.ssh && "
        f"printf 'Host {address}\\n Port 2\\n' > {config} && chown train {config} && chmod 600 {config}"
    )
    try:
        run = play.launch(WORKER, **MPIRUN, **mindspore, job_nodes=2).wait()
        # Otherwise no launcher needs ssh between the nodes.
        other = play.launch(WORKER, **MPIRUN, job_nodes=2, job_command=["python3", "worker.py", "--steps", "3"]).wait()
    finally:
        nodes["n1"].host.check_output(f"rm {config}")
    run.expect(
        2,
        "2 findings: the job cannot run, and nothing was started.",
        f"ssh on n1 found n2: ssh: connect to host {address} port 2: Connection refused expected train logs in from n1 "
        "to every node by its address on the job's network",
        "job_launcher found mpirun for MindSpore on CPU",
        "do set job_launcher: mindspore",
    )
    assert other.rc == 0, other.output


@pytest.mark.long
def test_a_node_that_ssh_does_not_reach_any_more(play, node_vars, left):
    """Preflight logs in without the job's own options of ssh, so these fail later, as a node that is lost meanwhile."""
    options = {"plm_rsh_args": "-o BatchMode=yes -p 2"}
    run = play.launch(WORKER, **MPIRUN, job_nodes=2, job_mpi_parameters=options).wait().expect(2)
    assert re.search(r"^  mpirun on n1 failed first: exit code \d+$", run.output, re.MULTILINE)
    address = node_vars["n2"]["ansible_host"]
    assert f"  ssh: connect to host n2 ({address}) port 2: Connection refused" in run.lines, run.output
    assert left(run.job_id) == {}


@pytest.mark.long
def test_a_rank_whose_program_is_gone_is_named(play, left):
    run = play.launch(WORKER, **MPIRUN, job_nodes=2, job_command=["sh", "-c", "exec ./gone-by-now"]).expect(2)
    assert re.search(r"^  rank [01] on n[12] failed first: .* 127, .*gone-by-now: not found$", run.output, re.MULTILINE)
    assert left(run.job_id) == {}


@pytest.fixture(scope="module")
def moved(play, nodes, node_vars, scheduler):
    """A job on n1 and n2 with the spare n3: rank 1 is killed, then n2, which comes back while the job goes on."""
    command = ["python3", "worker.py", "--resume", "--steps", "60", "--restarts", "2", "--gate"]
    spare = {"job_nodes": 2, "job_spares": 1, "job_max_restarts": 2}
    run = play.launch(WORKER, **MPIRUN, **spare, **scheduler, job_name="moved", job_command=command).trains()
    head, lost = nodes["n1"], nodes["n2"]
    lost.kill_rank(run.job_id, 1)
    run.wait_for(r"rank 1 on n[12]: .*, so the whole job starts again")
    wait_until(lambda: head.cluster(run)["ranks_running"] == 2 and began(lost, run, 2), "all ranks run again")
    lost.podman("kill")
    try:
        wait_until(lambda: head.cluster(run)["restarts"]["replaced"] == {"n2": "n3"}, "n3 in the place of n2")
    finally:
        lost.boot(node_vars["n2"]["ansible_host"])
    end = wait_until(lambda: lost.end(run), "the end of n2")
    for name in ("n1", "n3"):
        nodes[name].host.check_output(f"touch {run.job_dir}/source/go")
    return run.wait(), end


def began(node, run, times):
    """Return whether rank 1 has begun so many times on its node."""
    return node.host.run(f"grep -c ' pid ' {run.job_dir}/hosts/*/logs/rank_1.log").stdout == f"{times}\n"


@pytest.mark.long
def test_a_killed_rank_starts_all_again_and_a_spare_takes_the_place_of_a_killed_node(moved, nodes, node_vars, left):
    run, end = moved
    run.expect(0, "n3 takes the place of n2")
    killed, _ = run.summary["restarts"]
    assert (killed["failure"]["rank"], killed["failure"]["signal"], killed["restarted"]) == (1, 9, "the whole job")
    assert (end["failure"]["kind"], end["failure"]["by"]) == ("replaced", "n3")
    assert {node["host"]: node["ranks"] for node in run.summary["nodes"]} == {"n1": [0], "n3": [1], "n2": []}
    assert run.log(0).count("--- started again") == 2
    assert all("step 60/60" in run.log(rank) for rank in range(2))
    hostfile = nodes["n1"].host.check_output(f"cat {run.job_dir}/hosts/*/hostfile")
    assert hostfile.split() == [node_vars["n1"]["ansible_host"], "slots=1", node_vars["n3"]["ansible_host"], "slots=1"]
    wait_until(lambda: left(run.job_id) == {}, f"nothing of {run.job_id} is left")
