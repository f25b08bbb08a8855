"""Launcher mpirun: its command for Open MPI 4 and 5, the ranks' environment, findings, and the start of a rank."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from ansible.module_utils.trainyard.job.placement.hostfile import MpiHost, parse
from ansible.module_utils.trainyard.job.placement.placement import common_environment
from hypothesis import given, settings
from hypothesis import strategies as st
from job_cluster import packed_runtime
from job_samples import VENV, briefly, make_job, make_plan, member, node_facts, planned

OPEN_MPI_4 = {"version": "4.1.4", "path": "/usr/bin/mpirun"}
OPEN_MPI_5 = {"version": "5.0.7", "path": "/usr/bin/mpirun"}
PORTS = [{"device": "mlx5_0", "port": 1, "active": True, "link_layer": "InfiniBand"}]
JOB_DIR = "/var/lib/trainyard/jobs/digits-20261120-101500/hosts/@trainyard-host@"

names = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,8}", fullmatch=True).map(lambda name: "JOB_" + name)
environments = st.dictionaries(names, st.text(st.characters(exclude_characters="\0", codec="utf-8"), max_size=8))


def mpi_job(**changes):
    return make_job(launcher="mpirun", **changes)


def nodes(count, mpi=OPEN_MPI_4, **changes):
    return [member(number, mpi=mpi, **changes) for number in range(count)]


def mpirun_of(plan):
    (process,) = [process for node in plan["nodes"] for process in node["processes"]]
    return process


def argv_of(job, members):
    return mpirun_of(make_plan(job, members).as_dict())["argv"]


def options(argv, option="--mca"):
    return {argv[at + 1]: argv[at + 2] for at, word in enumerate(argv) if word == option}


def exported(argv):
    return [argv[at + 1] for at, word in enumerate(argv) if word == "-x"]


def file_of(node, name):
    (found,) = [file for file in node["files"] if file["path"] == f"{JOB_DIR}/{name}"]
    return found


def test_one_mpirun_with_all_ranks_stands_on_the_head():
    plan = make_plan(mpi_job(), nodes(3, devices=2)).as_dict()
    assert [len(node["processes"]) for node in plan["nodes"]] == [1, 0, 0]
    process = mpirun_of(plan)
    assert (process["name"], process["ranks"]) == ("mpirun", list(range(6)))
    assert process["log"] == f"{JOB_DIR}/logs/mpirun.log"
    argv = process["argv"]
    assert argv[:7] == ["mpirun", "--hostfile", f"{JOB_DIR}/hostfile", "-n", "6", "--map-by", "slot"]
    start = 'exec "${TRAINYARD_NODE_DIR:-$(echo /var/lib/trainyard/jobs/digits-20261120-101500/hosts/*)}/mpi_rank" "$@"'
    assert argv[-6:] == ["/bin/sh", "-c", start, "mpi_rank", "python", "train.py"]
    hosts, problems = parse(file_of(plan["nodes"][0], "hostfile")["content"])
    assert (hosts, problems) == ([MpiHost(f"10.77.0.{number}", 2) for number in (1, 2, 3)], {})
    scripts = ["mpi_rank", "mpi_agent", "mpi_daemon"]
    names = [[Path(file["path"]).name for file in node["files"]] for node in plan["nodes"]]
    assert names == [[*scripts, "hostfile"], scripts, scripts]


def test_hosts_on_the_command_line():
    for mpi, head in ((OPEN_MPI_4, "10.77.0.1"), (OPEN_MPI_5, "localhost")):
        argv = argv_of(mpi_job(mpi_placement="hosts"), nodes(2, mpi, devices=4))
        assert argv[:3] == ["mpirun", "-H", f"{head}:4,10.77.0.2:4"]


def test_parameters_of_open_mpi_4():
    argv = argv_of(mpi_job(), nodes(2))
    assert "--prtemca" not in argv
    assert options(argv) == {
        "btl": "self,vader,tcp",
        "btl_tcp_if_include": "10.77.0.0/16",
        "hwloc_base_binding_policy": "none",
        "oob_tcp_if_include": "10.77.0.0/16",
        "plm_rsh_agent": f"/bin/sh {JOB_DIR}/mpi_agent",
        "plm_rsh_no_tree_spawn": "1",
        "plm_rsh_num_concurrent": "128",
        "pml": "ob1",
    }


def test_one_node_alone_needs_no_ssh():
    assert options(argv_of(mpi_job(), nodes(1)))["plm_rsh_agent"] == "false"
    assert options(argv_of(mpi_job(), nodes(1, OPEN_MPI_5)), "--prtemca")["plm_ssh_agent"] == "false"


def test_parameters_of_open_mpi_5():
    job = mpi_job(mpi_parameters={"plm_base_verbose": 5, "oob_tcp_if_exclude": "lo", "btl_vader_eager_limit": 1024})
    argv = argv_of(job, nodes(2, OPEN_MPI_5))
    own = {"btl": "self,sm,tcp", "btl_sm_eager_limit": "1024", "btl_tcp_if_include": "10.77.0.0/16", "pml": "ob1"}
    assert options(argv) == own
    assert options(argv, "--prtemca") == {
        "hwloc_default_binding_policy": "none",
        "plm_base_verbose": "5",
        "plm_ssh_agent": f"/bin/sh {JOB_DIR}/mpi_agent",
        "plm_ssh_no_tree_spawn": "1",
        "plm_ssh_num_concurrent": "128",
        "prte_if_exclude": "lo",
    }


def test_the_parameters_of_the_job_win():
    job = mpi_job(mpi_parameters={"btl": "self,tcp", "btl_tcp_if_exclude": "lo,docker0", "mpi_show_handle_leaks": True})
    found = options(argv_of(job, nodes(2)))
    assert (found["btl"], found["mpi_show_handle_leaks"]) == ("self,tcp", "true")
    assert found["btl_tcp_if_exclude"] == "lo,docker0"
    # Open MPI refuses a list of networks to take and one to leave at once.
    assert "btl_tcp_if_include" not in found and "oob_tcp_if_include" in found


def test_with_infiniband_on_all_nodes_open_mpi_chooses_the_transport():
    def chosen(*rdma):
        members = [
            member(number, mpi=OPEN_MPI_4, networks={**node_facts(number)["networks"], "rdma": ports})
            for number, ports in enumerate(rdma)
        ]
        return {"pml", "btl"} & options(argv_of(mpi_job(), members)).keys()

    assert chosen(PORTS, PORTS) == set()
    assert chosen(PORTS, []) == {"pml", "btl"}


def test_nodes_in_several_networks():
    members = []
    for number, address in enumerate(("10.1.0.1", "10.2.0.1")):
        facts = node_facts(number, mpi=OPEN_MPI_4)
        facts["networks"]["interfaces"][0]["addresses"] = [f"{address}/24"]
        members.append(replace(member(number), address=address, facts=facts))
    found = options(argv_of(mpi_job(), members))
    assert found["btl_tcp_if_include"] == found["oob_tcp_if_include"] == "10.1.0.0/24,10.2.0.0/24"


def test_all_daemons_are_asked_for_at_once_as_each_request_lasts_as_long_as_its_daemon():
    assert options(argv_of(mpi_job(), nodes(2)))["plm_rsh_num_concurrent"] == "128"
    assert options(argv_of(mpi_job(), nodes(200)))["plm_rsh_num_concurrent"] == "200"


def test_arguments_of_ssh_alone_mean_ssh():
    job = mpi_job(mpi_parameters={"plm_rsh_args": "-p 2222"})
    found = options(argv_of(job, nodes(2)))
    assert (found["plm_rsh_agent"], found["plm_rsh_args"]) == ("ssh", "-p 2222")


def test_a_job_may_name_ssh_or_another_program():
    for agent, words in (("ssh", "-o BatchMode=yes -o ConnectTimeout=10"), ("srun-agent", None)):
        found = options(argv_of(mpi_job(mpi_parameters={"plm_rsh_agent": agent}), nodes(2)))
        assert (found["plm_rsh_agent"], found.get("plm_rsh_args")) == (agent, words)
        assert found["orte_launch_agent"].startswith("env TRAINYARD_JOB_ID=") and "orted" in found["orte_launch_agent"]


def test_a_thousand_nodes():
    plan = make_plan(mpi_job(), nodes(1000, devices=8)).as_dict()
    assert mpirun_of(plan)["ranks"] == list(range(8000))
    assert len(file_of(plan["nodes"][0], "hostfile")["content"].splitlines()) == 1000


def test_an_open_mpi_of_its_own_is_called_by_its_path_and_finds_its_libraries():
    own = {"version": "4.1.6", "path": "/opt/openmpi/bin/mpirun"}
    process = mpirun_of(make_plan(mpi_job(env={"LD_LIBRARY_PATH": "/opt/cuda/lib64"}), nodes(2, own)).as_dict())
    assert process["argv"][0] == "/opt/openmpi/bin/mpirun"
    assert process["env"]["LD_LIBRARY_PATH"] == "/opt/openmpi/lib:/opt/cuda/lib64"
    assert "LD_LIBRARY_PATH" in exported(process["argv"])
    assert "LD_LIBRARY_PATH" not in mpirun_of(make_plan(mpi_job(), nodes(2)).as_dict())["env"]


def test_ranks_that_may_start_again_know_the_attempt():
    plan = make_plan(mpi_job(max_restarts=2), nodes(2)).as_dict()
    assert "TRAINYARD_ATTEMPT" in exported(mpirun_of(plan)["argv"])
    assert all(",TRAINYARD_ATTEMPT," in file_of(node, "mpi_rank")["content"] for node in plan["nodes"])


def test_open_mpi_4_ends_ranks_without_waiting_where_they_start_again():
    def waits(mpi, **variables):
        argv = argv_of(mpi_job(**variables), nodes(2, mpi))
        return {**options(argv), **options(argv, "--prtemca")}.get("odls_base_sigkill_timeout")

    assert waits(OPEN_MPI_4, max_restarts=1) == "0"
    # Without restarts there is no next attempt. Open MPI 5 always waits 0.25 s.
    assert waits(OPEN_MPI_4) is waits(OPEN_MPI_5, max_restarts=1) is None
    given = {"odls_base_sigkill_timeout": 20}
    assert waits(OPEN_MPI_4, max_restarts=1, mpi_parameters=given) == "20"


def test_secrets_are_in_no_command_and_no_file():
    written = json.dumps(make_plan(mpi_job(secret_env=["API_KEY"]), nodes(2)).as_dict()["nodes"])
    assert "API_KEY" not in written


# ---- the environment of a rank


def job_folder(folder):
    for name in ("logs", "source"):
        (folder / name).mkdir()
    (folder / "trainyard.pyz").write_bytes(packed_runtime())
    node_plan = {"base_env": {"HOME": "/h"}, "secret_env": {"API_KEY": "hunter2"}}
    (folder / "node_plan.json").write_text(json.dumps(node_plan))
    return folder


@pytest.fixture
def job_dir(tmp_path):
    return job_folder(tmp_path)


def place(rank, size, local_rank, local_size):
    values = {"RANK": rank, "SIZE": size, "LOCAL_RANK": local_rank, "LOCAL_SIZE": local_size}
    return {f"OMPI_COMM_WORLD_{name}": str(value) for name, value in values.items()}


def write_script(job_dir, node):
    script = file_of(node, "mpi_rank")["content"]
    (job_dir / "mpi_rank").write_text(script.replace(f"{VENV}/bin/python", sys.executable))


def started_rank(job_dir, plan, node, rank=1):
    """Run a node's script as mpirun does, and return the environment that the rank found."""
    process = mpirun_of(plan)
    write_script(job_dir, node)
    # mpirun passes only the variables of -x; the rest comes from a login on the node.
    env = {name: process["env"][name] for name in exported(process["argv"])}
    env |= {"TRAINYARD_JOB_DIR": str(job_dir), **place(rank, 4, 1, 2), "PMIX_RANK": "1"}
    env |= {"http_proxy": "http://login", "SSH_CLIENT": "10.0.0.9"}
    log = job_dir / "logs" / f"rank_{rank}.log"
    log.unlink(missing_ok=True)
    show = [sys.executable, "-c", "import json, os; print(json.dumps([dict(os.environ), os.getcwd()]))"]
    subprocess.run(["sh", str(job_dir / "mpi_rank"), *show], env=env, check=True)
    found, folder = json.loads(log.read_text())
    assert folder == str(job_dir / "source")
    return found


@settings(max_examples=15)
@given(environments, environments, st.integers(0, 1))
def test_a_rank_has_the_environment_of_its_node_and_nothing_of_a_login(tmp_path_factory, job_env, node_env, which):
    folder = job_folder(tmp_path_factory.mktemp("job"))
    # Each node has cores of its own for its ranks (job_binding).
    domains = [[{"cpus": f"{at}", "devices": [at]} for at in range(count)] for count in (2, 4)]
    first = member(0, mpi=OPEN_MPI_4, devices=2, numa=domains[0])
    members = [first, member(1, mpi=OPEN_MPI_4, devices=4, numa=domains[1], cpus=64, env=node_env)]
    job = mpi_job(env=job_env, secret_env=["API_KEY"])
    made = make_plan(job, members)
    plan = made.as_dict()
    found = started_rank(folder, plan, plan["nodes"][which])
    expected = {
        **common_environment(job, made.placement, made.placement.nodes[which]),
        "GROUP_RANK": str(which),
        "TRAINYARD_JOB_DIR": str(folder),
        "TRAINYARD_NODE_DIR": str(folder),
        "HOME": "/h",
        "API_KEY": "hunter2",
        "RANK": "1",
        "WORLD_SIZE": "4",
        "LOCAL_RANK": "1",
        "LOCAL_WORLD_SIZE": "2",
        "PMIX_RANK": "1",
        **place(1, 4, 1, 2),
    }
    # Python may set this itself, where the locale is C.
    assert {name: value for name, value in found.items() if name != "LC_CTYPE"} == expected


@pytest.mark.parametrize(("program", "status"), [("no-such-program", 127), ("/etc/hostname", 126), ("false", 1)])
def test_a_rank_has_the_exit_status_of_its_program(job_dir, program, status):
    env = {**place(3, 4, 1, 2), "TRAINYARD_JOB_DIR": str(job_dir), "PATH": os.defpath}
    start = [sys.executable, "-IS", str(job_dir / "trainyard.pyz"), "mpi-rank", "PATH,TRAINYARD_JOB_DIR", program]
    done = subprocess.run(start, env=env, capture_output=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (status, b"", b"")
    log = (job_dir / "logs" / "rank_3.log").read_text()
    assert log.startswith(f"trainyard: cannot start '{program}'") == (status != 1)


GLOO = r"RuntimeError: [/src/gloo/transport/tcp/pair.cc:553] Connection closed by peer [10.7.0.3]:99 \c"


@pytest.mark.parametrize(
    ("command", "status", "end"),
    [
        ("exit 0", 0, "well"),
        (f"printf '%s\\n' '{GLOO}'; exit 1", 1, f"with status 1\ntrainyard: rank 1 lost its peer: {GLOO}"),
        ("exit 7", 7, "with status 7"),
        ("kill -9 $$", -9, "with status 137"),
        ("exit 255", 255, "with status 255"),
    ],
)
def test_a_ranks_exit_status_is_in_mpiruns_log(job_dir, command, status, end):
    write_script(job_dir, make_plan(mpi_job(stop_grace=0), nodes(1)).as_dict()["nodes"][0])
    env = {**place(1, 2, 0, 1), "TRAINYARD_JOB_DIR": str(job_dir), "PATH": os.defpath}
    run = ["sh", str(job_dir / "mpi_rank"), "sh", "-c", command]
    done = subprocess.run(run, env=env, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (status, "")
    # The shell itself may report before that its child was killed.
    lines = [line for line in done.stderr.splitlines() if "oom kills:" not in line]
    assert "\n".join(lines).endswith(f"trainyard: rank 1 ended {end}")


# ---- findings


def test_nodes_without_open_mpi_or_with_another_one():
    other, old = {"version": "4.1.2", "path": "/opt/openmpi/bin/mpirun"}, {**OPEN_MPI_4, "version": "3.1.3"}
    found = [OPEN_MPI_4, None, other, OPEN_MPI_4, old]
    _, findings = planned(mpi_job(), [member(number, mpi=mpi) for number, mpi in enumerate(found)])
    assert briefly(findings) == [
        ("n2", "mpi", "no Open MPI"),
        ("n3", "mpi", "Open MPI 4.1.2 (/opt/openmpi/bin/mpirun)"),
        ("n5", "mpi", "Open MPI 3.1.3 (/usr/bin/mpirun)"),
    ]
    assert findings[1].expected == "Open MPI 4.1.4 (/usr/bin/mpirun), as on the other nodes"
    _, findings = planned(mpi_job(), [member(0), member(1)])
    assert [(item.host, item.found) for item in findings] == [("n1", "no Open MPI"), ("n2", "no Open MPI")]


def test_mindspore_on_cpu_is_refused_and_on_devices_is_not():
    packages = {"packages": {"mindspore": "2.2.14"}}
    job, on_cpu = mpi_job(packages=["mindspore"]), mpi_job(packages=["mindspore"], devices="none")
    expected = [("", "job_launcher", "mpirun for MindSpore on CPU")]
    assert briefly(planned(job, nodes(2, **packages))[1]) == expected
    assert briefly(planned(on_cpu, nodes(2, devices=1, **packages))[1]) == expected
    make_plan(job, nodes(2, devices=1, **packages))


def test_ipv6_and_two_nodes_under_one_address():
    facts = node_facts(0, mpi=OPEN_MPI_4)
    facts["networks"]["interfaces"][0]["addresses"] = ["fd00::1/64"]
    first = replace(member(0), address="fd00::1", facts=facts)
    (finding,) = planned(mpi_job(), [first])[1]
    assert briefly([finding]) == [("n1", "network", "address fd00::1")]
    assert finding.action == "set job_network to an IPv4 network"
    twin = replace(member(0, mpi=OPEN_MPI_4, hostname="n2"), host="n2")
    _, findings = planned(mpi_job(), [member(0, mpi=OPEN_MPI_4), twin])
    assert [item.check for item in findings] == ["network", "network"]
