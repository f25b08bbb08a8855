"""Every block of a page docs/guide-*.md, as printed, passes site.yml's checks on the hosts that its guide is for."""

import json
import os
import re
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import yaml
from ansible.module_utils.trainyard.job.launchers import LAUNCHERS
from ansible.module_utils.trainyard.job.placement.process import agent_log
from ansible_run import PROJECT, run_ansible
from captured_tree import unfold

PAGES = [path.read_text() for path in (PROJECT / "docs").glob("guide*.md")]
# The guides' pages by title, and those where GPUs decide: the composed machine v100 stands for their hosts.
SECTIONS = {text.partition("\n")[0].removeprefix("# "): text for text in PAGES if "```yaml" in text}
OF_V100 = ("MindSpore on GPUs", "PyTorch on V100 with InfiniBand")
BUILDS = "https://mirror.example.org/pytorch"
# Checks that only this machine fails, as it is not one of the guide's hosts, and addresses that it may not reach.
OF_THIS_MACHINE = re.compile(r"host name|operating system|packages|space|package repository|source of |Python of ")


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


# Versions on PyPI of the packages that the roles pin, where a guide's block chooses the version.
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


@pytest.mark.parametrize("title", SECTIONS)
def test_each_block_of_the_guides_fits_its_hosts(title, index, tmp_path, monkeypatch):
    text = SECTIONS[title]
    block = re.search(r"```yaml\n(.*?)```", text, re.DOTALL)[1].replace(BUILDS, f"{index}/whl")
    groups = set(re.findall(r"`(nvidia|rdma)`", "".join(re.findall(r"Hosts also stand in the group.*?\.", text))))
    assert (title in OF_V100) == ("nvidia" in groups)
    host = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}
    hosts = {"compute": {"hosts": {"node1": host}}, **{group: {"hosts": {"node1": None}} for group in groups}}
    (tmp_path / "group_vars").mkdir()
    (tmp_path / "hosts.yml").write_text(yaml.safe_dump(hosts))
    (tmp_path / "group_vars/all.yml").write_text(block)
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    environment = {"PIP_CONFIG_FILE": str(tmp_path / "pip.conf")}
    (tmp_path / "pip.conf").write_text(f"[global]\nindex-url = {index}/simple\n")
    if title in OF_V100:
        # The modules that read a machine for NVIDIA's stack read the composed one.
        tree = unfold("v100", tmp_path / "machine", PROJECT / "tests/fixtures/nvidia_hosts")
        release = tree / "etc/os-release"
        release.write_text(release.read_text().replace("20.04", "22.04"))
        (tmp_path / "library").mkdir()
        for name in ("nvidia_host.py", "nvidia_driver_state.py"):
            module = (PROJECT / "library" / name).read_text()
            assert module.count('"root": {"type": "path", "default": "/"}') == 1
            (tmp_path / "library" / name).write_text(module.replace('"default": "/"}', f'"default": "{tree}"}}'))
        environment["ANSIBLE_LIBRARY"] = f"{tmp_path}/library:{PROJECT}/library"
    given = {"trainyard_become": False, "trainyard_free_gib": 0, "trainyard_root": f"{tmp_path}/root"}
    options = ["-i", str(tmp_path / "hosts.yml"), "-e", json.dumps(given)]
    run = run_ansible("ansible-playbook", "playbooks/validate.yml", *options, **environment)
    assert "Check the hosts" in run.output, run.output
    stops = run.output.partition("These hosts cannot become nodes yet")[2]
    found = re.findall(r"^  \d+\. (.+)$", stops, re.MULTILINE)
    assert run.rc == (2 if found else 0), run.output
    assert [check for check in found if not OF_THIS_MACHINE.match(check)] == [], run.output


def test_the_guides_name_logs_that_launchers_write():
    named = set(re.findall(r"`logs/(\w+\.log)`", "".join(PAGES)))
    ours = {launcher.rank_log.format(rank=rank) for launcher in LAUNCHERS.values() for rank in range(2)}
    folder = PROJECT / "module_utils/trainyard/job/launchers"
    ours |= {name for path in folder.glob("*.py") for name in re.findall(r"/logs/(\w+\.log)", path.read_text())}
    ours.add(Path(agent_log("", 0)).name)
    assert {"rank_0.log", "worker_0.log", "scheduler.log", "mpirun.log", "agent_0.log"} <= named
    assert named - ours == set()
