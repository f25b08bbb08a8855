"""Each page docs/guide-*.md, taken at its word: its inventory, commands and jobs fit the hosts that it is for."""

import json
import os
import re
import shlex
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import yaml
from ansible.module_utils.trainyard.job.launchers import LAUNCHERS
from ansible.module_utils.trainyard.job.placement.process import agent_log
from ansible.module_utils.trainyard_node.cluster.node_identity import read_node
from ansible.module_utils.trainyard_node.machine.tree import Tree
from ansible_run import PROJECT, run_ansible
from captured_tree import unfold
from job_samples import node_facts

PAGES = {path.stem: path.read_text() for path in sorted((PROJECT / "docs").glob("guide-*.md"))}
ALL_PAGES = [(PROJECT / "docs/guides.md").read_text(), *PAGES.values()]
# The composed machine of nvidia_hosts for hosts with GPUs, its system and kernel, where GPUs decide.
SYSTEMS = {
    "guide-mindspore-gpu": ("debian", "11", "5.10.0-30-amd64"),
    "guide-pytorch-v100": ("ubuntu", "22.04", "5.15.0-113-generic"),
}
# The captured machine of `nodes`, and the version of the framework there, for the plan of the page's job.
MACHINES = {
    "guide-ascend-ocr": ("ascend8", "2.10.0", "8 ranks on 1 node"),
    "guide-mindspore-cpu": ("plain", "2.10.0", "8 ranks on 1 node"),
    "guide-mindspore-gpu": ("gpu8_infiniband", "1.10.0", "16 ranks on 2 nodes"),
    "guide-oneflow": ("plain", "0.9.0", "2 ranks on 2 nodes"),
    "guide-pytorch-v100": ("gpu8_infiniband", "2.7.1", "16 ranks on 2 nodes"),
}
# Checks that only this machine fails, as it is not one of the guide's hosts, and addresses that it may not reach.
OF_THIS_MACHINE = re.compile(r"host name|operating system|packages|space|package repository|source of |Python of ")


def commands(page):
    """Return the commands of a page: the copy of its inventory, site.yml, the plan of its job, the job."""
    block = re.search(r"```\n(.*?)```", PAGES[page], re.DOTALL)[1]
    path, *lines = [shlex.split(line, comments=True) for line in block.splitlines()]
    assert path == ["export", "PATH=$PWD/.venv/bin:$PATH"]
    assert [line[:2] for line in lines[1:]] == [
        ["ansible-playbook", f"{name}.yml"] for name in ("site", *["launch"] * 2)
    ]
    return lines


def always(*pages):
    """Try a test with these pages on every change, and with the others by name."""
    values = [page if page in pages else pytest.param(page, marks=pytest.mark.long) for page in PAGES]
    return pytest.mark.parametrize("page", values)


@pytest.fixture
def mine(page, tmp_path):
    """The inventory that a page has its reader copy, and how a command calls Ansible with it."""
    (program, source, target), *_ = commands(page)
    path = tmp_path / Path(target).name
    subprocess.run([program, source, path], cwd=PROJECT, check=True)

    def call(line, *options, **env):
        return run_ansible(*[str(path) if word == target else word for word in line], *options, **env)

    return path, call


def here(tmp_path, **variables):
    """Return options that put composed hosts in the places of those of the inventory."""
    (tmp_path / "here.yml").write_text(yaml.safe_dump({"compute": {"vars": variables}}))
    return ["-i", str(tmp_path / "here.yml")]


@pytest.fixture(scope="module")
def index():
    """Serve two package indexes: /simple has the OFFERED versions, /whl a folder for each build of torch."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            kind, *rest = self.path.strip("/").split("/")
            wheels = []
            if kind == "whl" and rest[1:] == ["torch"]:
                wheels = [f"torch-{version}%2B{rest[0]}" for version in ("2.7.1", "2.13.0")]
            elif kind == "simple":
                wheels = [f"{rest[0].replace('-', '_')}-{version}" for version in OFFERED.get(rest[0], ())]
            self.send_response(200 if wheels else 404)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            links = "".join(f'<a href="/f/{name}-py3-none-any.whl">{name}-py3-none-any.whl</a>\n' for name in wheels)
            self.wfile.write(f"<html><body>{links}</body></html>".encode())

        def log_message(self, *args):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


# Versions on PyPI of the packages that the roles pin, where a guide's inventory chooses the version.
OFFERED = {
    "torch": ["2.7.1", "2.13.0"],
    "numpy": ["1.23.5", "1.26.4", "2.0.2", "2.2.6", "2.4.6"],
    "py-spy": ["0.4.3"],
    "nvidia-nccl-cu11": ["2.13.4", "2.14.3", "2.21.5"],
    "nvidia-cudnn-cu11": ["8.5.0.96"],
    "mindspore": ["2.10.0"],
    "mindspore-gpu": ["1.10.0"],
    "oneflow": ["0.9.0"],
    "nvidia-cublas-cu11": ["11.10.3.66"],
    "protobuf": ["3.20.3"],
    "scikit-learn": ["1.6.1"],
}


def composed_gpus(page, tmp_path):
    """Return the environment in which the module that reads a machine for NVIDIA's stack reads the composed one."""
    text = (PROJECT / "tests/fixtures/nvidia_hosts/v100.tree").read_text()
    (tmp_path / "v100.tree").write_text(text.replace("5.4.0-216-generic", SYSTEMS[page][2]))
    tree = unfold("v100", tmp_path / "machine", tmp_path)
    (tree / "etc/os-release").write_text('ID={}\nVERSION_ID="{}"\nID_LIKE=debian\n'.format(*SYSTEMS[page]))
    (tmp_path / "library").mkdir()
    module = (PROJECT / "library/nvidia_driver.py").read_text()
    assert module.count('"root": {"type": "path", "default": "/"}') == 1
    (tmp_path / "library/nvidia_driver.py").write_text(module.replace('"default": "/"}', f'"default": "{tree}"}}'))
    return {"ANSIBLE_LIBRARY": f"{tmp_path}/library:{PROJECT}/library"}


@always("guide-mindspore-cpu", "guide-oneflow", "guide-pytorch-v100")
def test_the_inventory_of_each_guide_fits_its_hosts(page, mine, index, tmp_path, monkeypatch):
    inventory, call = mine
    groups = yaml.safe_load(inventory.read_text())
    assert (page in SYSTEMS) == ("nvidia" in groups)
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    environment = {"PIP_CONFIG_FILE": str(tmp_path / "pip.conf")}
    (tmp_path / "pip.conf").write_text(f"[global]\nindex-url = {index}/simple\n")
    if page in SYSTEMS:
        environment |= composed_gpus(page, tmp_path)
    given = {"trainyard_become": False, "trainyard_free_gib": 0, "trainyard_root": f"{tmp_path}/root"}
    if "pytorch_builds_url" in groups["all"]["vars"]:
        given["pytorch_builds_url"] = f"{index}/whl"
    site = ["playbooks/validate.yml" if word == "site.yml" else word for word in commands(page)[1]]
    host = next(iter(groups["compute"]["hosts"]))
    local = here(tmp_path, ansible_connection="local", ansible_python_interpreter=sys.executable)
    run = call(site, *local, "--limit", f"{host},localhost", "-e", json.dumps(given), **environment)
    assert "Check the hosts" in run.output, run.output
    stops = run.output.partition("These hosts cannot become nodes yet")[2]
    found = re.findall(r"^  \d+\. (.+)$", stops, re.MULTILINE)
    assert run.rc == (2 if found else 0), run.output
    ours = [check for check in found if not OF_THIS_MACHINE.match(check)]
    assert ours == [], run.output


@always("guide-ascend-ocr", "guide-pytorch-v100")
def test_the_job_of_each_guide_has_a_plan_on_its_hosts(page, mine, tmp_path):
    tree, version, size = MACHINES[page]
    plan = commands(page)[2]
    assert plan == [*commands(page)[3], "--check"]
    job = yaml.safe_load((PROJECT / plan[plan.index("-e") + 1].removeprefix("@")).read_text())
    read = read_node(Tree(str(unfold(tree, tmp_path / "machine"))), packages=[], venv=None, user=None)
    packages = dict.fromkeys(job.get("job_packages", ["torch"]), version)
    node = {**read, **node_facts(), "accelerators": read["accelerators"], "packages": packages}
    node["mpi"] = {"version": "4.0.3", "path": "/opt/trainyard/openmpi/bin/mpirun"}
    (tmp_path / "facts.json").write_text(json.dumps(node))
    composed = {"ansible_connection": "nowhere", "simulated_facts": str(tmp_path / "facts.json")}
    hosts = here(tmp_path, simulated_address="{{ ansible_host }}", **composed)
    given = {"trainyard_runs": str(tmp_path / "runs"), "trainyard_become": False}
    plugins = str(PROJECT / "benchmarks/simulated")
    run = mine[1](plan, *hosts, "-e", json.dumps(given), ANSIBLE_CONNECTION_PLUGINS=plugins, ANSIBLE_PIPELINING="true")
    run.expect(0, f": {size}, launcher {job.get('job_launcher', 'torchrun')}")


@pytest.mark.parametrize("page", PAGES)
def test_the_inventory_of_each_guide_has_what_the_jobs_of_its_page_need(page):
    variables = yaml.safe_load((PROJECT / commands(page)[0][1]).read_text())["all"]["vars"]
    sets = {each["name"] for each in variables.get("dataset_sets", [{"name": "digits"}])}
    named = set(re.findall(r"jobs/[\w-]+\.yml", PAGES[page]))
    assert named
    for path in named:
        job = yaml.safe_load((PROJECT / path).read_text())
        needed = {job.get("job_venv", "pytorch"), "openmpi" if "mpirun" in job.get("job_launcher", "") else None}
        needed = {each for each in needed if each and not each.startswith("/")}
        needed |= {"openmpi"} if "job_launcher=mpirun" in PAGES[page] else set()
        assert needed <= set(variables["trainyard_frameworks"]), path
        assert {each.rpartition("/")[2] for each in job.get("job_data", ()) if "trainyard_state" in each} <= sets, path


def test_the_guides_name_logs_that_launchers_write():
    named = set(re.findall(r"`logs/(\w+\.log)`", "".join(ALL_PAGES)))
    ours = {launcher.rank_log.format(rank=rank) for launcher in LAUNCHERS.values() for rank in range(2)}
    folder = PROJECT / "module_utils/trainyard/job/launchers"
    ours |= {name for path in folder.glob("*.py") for name in re.findall(r"/logs/(\w+\.log)", path.read_text())}
    ours.add(Path(agent_log("", 0)).name)
    assert {"rank_0.log", "worker_0.log", "scheduler.log", "mpirun.log", "agent_0.log"} <= named
    assert named - ours == set()
