"""Collectives and pairs measured on real nodes: what is recorded, wrong results, a rank killed, a way that is cut."""

import json

import pytest

BENCHMARK = "playbooks/collective_benchmark.yml"
PAIRS = "playbooks/pair_check.yml"
SMALL = {"benchmark_min_bytes": "4K", "benchmark_max_bytes": "256K", "benchmark_factor": 8, "benchmark_iterations": 2}
SMALL_PAIRS = {"pair_hosts": "compute[0:2]", "pair_max_bytes": "4M", "pair_backend": "gloo", "pair_retests": 0}
COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "alltoall", "sendrecv")
PLANTED = "/opt/planted"
# The broken program adds a number that no rank sent.
SITECUSTOMIZE = """\
import torch.distributed as dist
right = dist.all_reduce
def all_reduce(buffer, *arguments, **keywords):
    right(buffer, *arguments, **keywords)
    buffer[3] += 1
dist.all_reduce = all_reduce
"""


def record(run):
    """The one record of a benchmark, as it is kept with the run."""
    (only,) = run.file("benchmark.json")
    return only


def measured(record):
    """Bytes and wrong elements of each size, both ways of it."""
    return [(row["bytes"], row["out_of_place"]["wrong"], row["in_place"]["wrong"]) for row in record["sizes"]]


@pytest.fixture(scope="module")
def gloo(play):
    """Three nodes: shares are smaller than a third of the power of two, whole blocks of 16 bytes."""
    return play(
        BENCHMARK, benchmark_backend="gloo", benchmark_collective="reduce_scatter", benchmark_nodes=3,
        benchmark_busbw=0.000001, **SMALL,
    ).wait()  # fmt: skip


def test_gloo_over_an_odd_number_of_nodes(gloo, left):
    assert gloo.rc == 0, gloo.output
    found = record(gloo)
    assert (found["state"], found["reason"]) == ("pass", "")
    assert (found["collective"], found["backend"], found["ranks"]) == ("reduce_scatter", "gloo", 3)
    assert (found["hosts"], found["job_id"], found["footer_seen"]) == (["n1", "n2", "n3"], gloo.job_id, True)
    assert measured(found) == [(4080, 0, 0), (32736, 0, 0), (262128, 0, 0)]
    assert left(gloo.job_id) == {}


@pytest.mark.long
def test_mpi_needs_no_framework_and_a_speed_without_a_measure_is_not_judged(play, left):
    """Nobody knows how fast containers should be."""
    run = play(BENCHMARK, benchmark_backend="mpi", benchmark_collective="all_gather", benchmark_hosts="n1,n3", **SMALL)
    assert run.rc == 0, run.output
    found = record(run)
    assert found["state"] == "skipped"
    assert "eth0 of n1 is virtual: it has no speed of its own" in found["reason"]
    assert (found["collective"], found["backend"], found["hosts"]) == ("all_gather", "mpi", ["n1", "n3"])
    assert measured(found) == [(4096, 0, 0), (32768, 0, 0), (262144, 0, 0)]
    assert left(run.job_id) == {}


@pytest.mark.long
@pytest.mark.parametrize(
    ("backend", "collective"),
    [*(("mpi", collective) for collective in COLLECTIVES), *(("gloo", collective) for collective in COLLECTIVES[1:])],
)
def test_every_collective_is_right_both_ways(gloo, nodes, backend, collective):
    """By hand, in the folder that the job has left on the node."""
    start = {
        "mpi": "mpirun --oversubscribe --mca mpi_yield_when_idle 1 -n 3 python3",
        "gloo": "/opt/trainyard/venvs/pytorch/bin/torchrun --standalone --nproc-per-node 2",
    }[backend]
    source = f"{gloo.job_dir}/source"
    options = f"--backend {backend} --collective {collective} -b 64K -e 64K -n 2"
    done = nodes["n1"].host.run(f"runuser -u train -- sh -c 'cd {source} && {start} collectives.py {options}'")
    assert done.rc == 0, done.stderr
    (row,) = [line.split() for line in done.stdout.splitlines() if not line.startswith("#")]
    assert len(row) == 13
    assert [row[8], row[12]] == ["0", "N/A" if collective in ("alltoall", "sendrecv") else "0"]


@pytest.fixture
def n2_gets_wrong_sums(nodes, tmp_path):
    """An inventory beside the lab's, by which ranks on n2 add what nobody sent."""
    host = nodes["n2"].host
    host.check_output(f"mkdir -p {PLANTED} && cat > {PLANTED}/sitecustomize.py <<'END'\n{SITECUSTOMIZE}END")
    beside = tmp_path / "planted.yml"
    hosts = {"n2": {"job_node_env": {"PYTHONPATH": PLANTED}}}
    beside.write_text(json.dumps({"compute": {"hosts": hosts}}))
    yield beside
    host.check_output(f"rm -r {PLANTED}")


def test_wrong_results_on_one_rank_are_found_and_its_host_named(play, n2_gets_wrong_sums, left):
    run = play(BENCHMARK, "-i", str(n2_gets_wrong_sums), benchmark_backend="gloo", benchmark_nodes=3, **SMALL).expect(2)
    found = record(run)
    assert found["state"] == "fail"
    assert found["reason"] == "wrong results: 1 element at 4096 bytes, and at 2 more sizes (rank 1 on n2)"
    assert measured(found) == [(4096, 1, 1), (32768, 1, 1), (262144, 1, 1)]
    # Both ways of three sizes.
    assert "# Wrong on rank 1 on n2: 6 elements" in run.log(0)
    assert "# Wrong on rank 1 on n2: 6 elements" in run.log(1)
    assert run.summary["failure"]["host"] == "n2"
    assert left(run.job_id) == {}


@pytest.mark.long
def test_a_rank_that_is_killed_half_way(play, nodes, left):
    """The first size is soon measured, the second one never would be."""
    run = play(
        BENCHMARK, benchmark_backend="gloo", benchmark_nodes=3, benchmark_min_bytes="4K", benchmark_max_bytes="32M",
        benchmark_factor=8192, benchmark_iterations=1000,
    )  # fmt: skip
    run.wait_for(r"ranks running   busbw [\d.]+   bytes 4096")
    for pid in nodes["n2"].ranks(run.job_id):
        nodes["n2"].table.kill(pid)
    assert run.rc == 2, run.output
    found = record(run)
    assert found["state"] == "fail"
    assert "rank 1 on n2 failed first: killed by SIGKILL" in found["reason"]
    assert not found["footer_seen"]
    assert measured(found) == [(4096, 0, 0)]
    assert left(run.job_id) == {}


def test_a_benchmark_that_cannot_run_says_why(play):
    run = play(BENCHMARK, benchmark_backend="gloo", benchmark_venv="/opt/nothing").expect(2)
    said = (
        "the job could not run: versions on n1: found no torch in /opt/nothing, expected torch installed on every node"
    )
    assert said in run.text
    run = play(BENCHMARK, benchmark_backend="tcp").wait()
    run.expect(2, "benchmark_backend found tcp expected one of auto, nccl, gloo, hccl, mpi do")


@pytest.mark.long
def test_pairs_of_an_odd_number_of_nodes(play, left):
    """How fast they are is not looked at: the nodes share two cores."""
    run = play(PAIRS, **SMALL_PAIRS)
    run.wait()
    found = run.file("pairs.json")
    pairs = {tuple(each["hosts"]) for each in found["measurements"]}
    assert pairs == {("n1", "n2"), ("n2", "n3"), ("n1", "n3")}
    assert {(each["wrong"], each["error"]) for each in found["measurements"]} == {(0, "")}
    assert all(each["busbw"] > 0 for each in found["measurements"])
    assert run.rc == {"pass": 0, "fail": 2, "unknown": 3}[found["stragglers"]["state"]], run.output
    assert [node["host"] for node in found["stragglers"]["nodes"]] == ["n1", "n2", "n3"]
    assert found["jobs"] == [run.job_id]
    assert left(run.job_id) == {}


@pytest.fixture
def n3_does_not_reach_n2(nodes, node_vars):
    """What n3 sends to n2 is lost; both reach n1, where the job's head is."""
    route = f"blackhole {node_vars['n2']['ansible_host']}/32"
    nodes["n3"].host.check_output(f"ip route add {route}")
    yield
    nodes["n3"].host.check_output(f"ip route del {route}")


@pytest.mark.long
def test_a_pair_that_does_not_meet_costs_its_time_and_not_the_run(play, n3_does_not_reach_n2, left):
    schedule = [[["n2", "n3"]], [["n1", "n2"]], [["n1", "n3"]]]
    run = play(PAIRS, pair_schedule=schedule, pair_timeout=15, **SMALL_PAIRS)
    run.wait()
    found = run.file("pairs.json")
    errors = {tuple(each["hosts"]): each["error"] for each in found["measurements"] if each["error"]}
    assert set(errors) == {("n2", "n3")}
    assert "did not come within 15 s" in errors["n2", "n3"]
    assert {tuple(each["hosts"]) for each in found["measurements"] if each["busbw"]} == {("n1", "n2"), ("n1", "n3")}
    # Whether one of the two is to blame depends on how fast the others happen to be, as the nodes share two cores.
    assert found["stragglers"]["state"] in {"fail", "unknown"}
    assert run.rc == {"fail": 2, "unknown": 3}[found["stragglers"]["state"]], run.output
    assert found["jobs"] == [run.job_id]
    assert left(run.job_id) == {}
