"""`make test-gpu` and `make test-npu`: each test is a step of the report that the owner of the hardware can send.

A step that cannot run on this machine says why and is "not run" (pytest.skip), never "passed". All work is done in a
temporary folder; only the report stays.
"""

import json
import os
import pwd
import shutil
import socket
import sys
import tempfile
import time
from pathlib import Path

import ansible.module_utils
import pytest

PROJECT = Path(__file__).resolve().parents[2]
ansible.module_utils.__path__.append(str(PROJECT / "module_utils"))
sys.path.insert(0, str(Path(__file__).parent))

from anonymous import Anonymous  # noqa: E402
from ansible.module_utils.trainyard.nvidia.nvidia_hardware import read_os  # noqa: E402
from ansible.module_utils.trainyard_node.hardware.device_discovery import read_accelerators  # noqa: E402
from ansible.module_utils.trainyard_node.hardware.network_discovery import read_networks  # noqa: E402
from ansible.module_utils.trainyard_node.machine.tree import Tree  # noqa: E402
from recording import Recording  # noqa: E402
from report import STATES, Report  # noqa: E402
from software import Ran, ran  # noqa: E402

# By test file: what is tested, and the tool by which its driver answers.
KINDS = {"test_gpu.py": ("gpu", "nvidia", "nvidia-smi"), "test_npu.py": ("npu", "ascend", "npu-smi")}
# A playbook that measures, with its jobs.
_PLAY_SECONDS = 1200
_SESSION = pytest.StashKey["Session"]()


class Session:
    """What all steps share: the report, the work folder, the machine, and playbooks that run on it."""

    def __init__(self, kind, vendor, tool, folder):
        self.kind, self.vendor, self.tool = kind, vendor, tool
        user = pwd.getpwuid(os.geteuid())
        self.user = user.pw_name
        networks = read_networks(Tree(), None)
        addresses = [address.partition("/")[0] for item in networks["interfaces"] if item["kind"] != "loopback"
                     for address in item["addresses"]]  # fmt: skip
        name = socket.gethostname()
        self.anonymous = Anonymous({name, name.partition(".")[0], socket.getfqdn()}, addresses, {user.pw_dir})
        self.report = Report(kind, folder, PROJECT, self.anonymous)
        self.work = Path(tempfile.mkdtemp(prefix=f"trainyard-{kind}-"))
        self.root, self.runs = self.work / "root", self.work / "runs"
        self.root.mkdir()
        self._plays = 0
        self.tree = Recording(folder / "captures", self.anonymous)
        self.accelerators = read_accelerators(self.tree)
        self.version = self.command(f"{tool} {'--version' if vendor == 'nvidia' else '-v'}")
        if "fake" in self.version.output or "replay" in self.version.output:
            self.report.fakes.append(" ".join(self.version.output.split()))
        self.report.machine.update(
            os=read_os(self.tree.text("/etc/os-release")),
            driver=self.accelerators["driver"],
            devices=[device["model"] for device in self.accelerators["devices"]],
        )
        # Files that a playbook keeps outside the work folder, unless they were there before.
        self._agents = Path("/var/cache/trainyard" if os.geteuid() == 0 else Path.home() / ".cache/trainyard")
        self._had_agents = self._agents.exists()

    @property
    def count(self):
        """Number of devices."""
        return len(self.accelerators["devices"])

    def command(self, line, seconds=120):
        """Run a command, and keep what it prints among the captures under its own words."""
        program, *options = line.split()
        outcome = self.tree.command("_".join([Path(program).name, *options]).replace("/", "-"), line.split(), seconds)
        return Ran(127, f"no {program}") if outcome is None else Ran(*outcome)

    def play(self, playbook, *options, **variables):
        """Run a playbook on this machine; its output is among the report's logs."""
        self._plays += 1
        given = {
            "trainyard_runs": str(self.runs),
            "trainyard_root": str(self.root),
            "trainyard_state": str(self.work / "state"),
            **variables,
        }
        own = {
            "ANSIBLE_CONFIG": str(PROJECT / "ansible.cfg"),
            "ANSIBLE_HOME": str(self.work / "ansible"),
            "ANSIBLE_REMOTE_TEMP": str(self.work / "ansible/tmp"),
            "ANSIBLE_FORCE_COLOR": "0",
            "TMPDIR": str(self.work),
        }
        inventory = str(Path(__file__).parent / "inventory.yml")
        program = str(Path(sys.executable).with_name("ansible-playbook"))
        command = [program, playbook, "-i", inventory, "-e", json.dumps(given), *options]
        done = ran(command, _PLAY_SECONDS, PROJECT, own)
        self.report.keep_text(done.output, f"logs/{self._plays:02}-{Path(playbook).stem}.txt")
        return done

    def run_folder(self, before):
        """Keep what is worth sending of the runs since then, and return the folder of the last one, None without."""
        new = sorted(self.known_runs() - before, key=lambda path: path.stat().st_mtime)
        for folder in new:
            for path in [*folder.glob("*.json"), *folder.glob("*.html"), *folder.glob("*.xml"), *folder.glob("logs/*")]:
                if path.is_file():
                    self.report.keep(path, f"runs/{folder.name}/{path.relative_to(folder)}")
        return new[-1] if new else None

    def known_runs(self):
        """Return the runs that there are by now."""
        return frozenset(self.runs.glob("*/"))

    def close(self):
        """End jobs that still run, as after Ctrl-C, and remove all but the report."""
        for run in self.known_runs():
            if (run / "plan.json").exists() and not (run / "summary.json").exists():
                self.play("playbooks/stop.yml", job_id=run.name)
        shutil.rmtree(self.work, ignore_errors=True)
        if not self._had_agents:
            shutil.rmtree(self._agents, ignore_errors=True)


def pytest_collection_finish(session):
    """Look for the devices once, before any step, and end with one message where there are none."""
    files = {item.path.name for item in session.items} & set(KINDS)
    if not files or session.config.option.collectonly:
        return
    if len(files) > 1:
        raise pytest.UsageError("one kind of devices at a time: make test-gpu, make test-npu")
    kind, vendor, tool = KINDS[files.pop()]
    found = read_accelerators(Tree())
    if found["vendor"] != vendor or not found["devices"]:
        what = {"nvidia": "NVIDIA GPU", "ascend": "Ascend NPU"}[vendor]
        why = "; ".join(found["problems"]) or f"no {tool}, and no such device on the PCI bus"
        raise pytest.UsageError(
            f"make test-{kind}: this machine has no {what} that its driver answers for: {why}. Expected one or more. "
            "Nothing was tested, nothing was written."
        )
    root = Path(os.environ.get("TRAINYARD_TEST_REPORTS") or PROJECT / "runs")
    folder = root / f"test-{kind}-{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}"
    session.config.stash[_SESSION] = Session(kind, vendor, tool, folder)


@pytest.fixture(scope="session")
def machine(request):
    """Return what all steps share."""
    return request.config.stash[_SESSION]


@pytest.fixture
def record(request):
    """Return a dictionary; what a step writes into it stands in the report."""
    data = {}
    request.node.user_properties.append(("data", data))
    return data


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    """Note what came of a step, in the words of the report."""
    outcome = yield
    session = item.config.stash.get(_SESSION, None)
    if session is not None and (outcome.when == "call" or (outcome.when == "setup" and not outcome.passed)):
        about = " ".join((item.obj.__doc__ or item.name).split())
        data = dict(item.user_properties).get("data", {})
        reason = ""
        if outcome.skipped:
            reason = str(call.excinfo.value)
        elif outcome.failed:
            reason = session.anonymous(str(call.excinfo.value) or call.excinfo.typename)
            session.report.keep_text(outcome.longreprtext, f"logs/{item.name}.txt")
        step = session.report.step(
            item.name.removeprefix("test_"), about, outcome.outcome, reason, outcome.duration, data
        )
        first = f": {reason.splitlines()[0]}" if reason else ""
        terminal = item.config.pluginmanager.get_plugin("terminalreporter")
        terminal.write_line(f"  {session.report.elapsed}  {step['state']:<8} {step['name']}{first}")
    return outcome


def pytest_report_teststatus(report):
    """A skipped test is a step that was not run."""
    if report.when == "call" or (report.when == "setup" and not report.passed):
        return report.outcome, "", STATES[report.outcome]
    return None


def pytest_terminal_summary(terminalreporter, config):
    """Say what came of each step, and where the report is."""
    session = config.stash.get(_SESSION, None)
    if session is None:
        return
    report, write = session.report, terminalreporter.write_line
    packed = report.write()
    write("")
    for name in report.fakes:
        write(f"With a fake, which says nothing of any device: {name}")
    numbers = ", ".join(f"{number} {state}" for state, number in report.numbers.items())
    write(f"{numbers} on {session.count} x {', '.join(sorted(set(report.machine['devices'])))}")
    write(f"  report  {report.folder / 'report.json'}")
    write(f"  send    {packed}   (names, addresses, serial numbers and secrets are taken out; look before you send it)")


def pytest_unconfigure(config):
    """Leave nothing behind, also after Ctrl-C."""
    session = config.stash.get(_SESSION, None)
    if session is not None:
        session.close()
