"""Fixtures of all scenarios: the lab's inventory, playbooks and jobs on it, the journal of a failed node."""

from __future__ import annotations

import functools
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import testinfra
from lab_jobs import CHOSEN, LAB, PROJECT, SCHEDULERS, Node, Play, PlaybookRun, ansible_playbook
from testinfra.backend.ssh import SshBackend
from testinfra.utils.ansible_runner import AnsibleRunner

# testinfra keeps ssh connections but sets no ControlPath, so it would log in for each command.
CONNECTIONS = Path.home() / ".ansible/cp" / LAB
SshBackend.__init__ = functools.partialmethod(SshBackend.__init__, controlpath=f"{CONNECTIONS}/tests-%%h")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Give each test with the fixture `scheduler` the variables of its schedulers."""
    if "scheduler" in metafunc.fixturenames:
        names = ["ssh"] if metafunc.definition.get_closest_marker("ssh") else list(SCHEDULERS)
        metafunc.parametrize("scheduler", [SCHEDULERS[name] for name in names], ids=names, scope="module")


def _runs(item: pytest.Item) -> bool:
    """Return whether a test runs: a long one by name; by Slurm one with the mark, or all where Slurm was chosen."""
    if os.environ.get("BUNDLE") and item.get_closest_marker("mirrors"):
        return False
    if os.environ.get("TRAINYARD_TESTS") != "all" and item.get_closest_marker("long"):
        return False
    if hasattr(item, "callspec") and item.callspec.params.get("scheduler"):
        return "slurm" in CHOSEN if CHOSEN else item.get_closest_marker("slurm") is not None
    return not CHOSEN or "ssh" in CHOSEN


def _hang_up() -> None:
    for path in CONNECTIONS.glob("tests-*"):
        subprocess.run(["ssh", "-o", f"ControlPath={path}", "-O", "exit", "node"], check=False, capture_output=True)
        path.unlink(missing_ok=True)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out, and count as deselected, what does not run."""
    left = [item for item in items if not _runs(item)]
    # Slurm first, before tests have lost nodes, which it takes back some time later.
    items.sort(key=lambda item: not (hasattr(item, "callspec") and item.callspec.params.get("scheduler")))
    config.hook.pytest_deselected(items=left)
    items[:] = [item for item in items if item not in left]


@pytest.fixture(scope="session", autouse=True)
def own_connections() -> Iterator[None]:
    """Begin with new connections: an older login has the limits and groups of before the converge."""
    _hang_up()
    yield
    _hang_up()


@pytest.fixture(scope="session")
def inventory_path() -> Path:
    """Return the folder of the lab's inventory."""
    # Molecule runs pytest in the scenario's folder, to which a relative name refers.
    return Path(os.environ.get("LAB_INVENTORY") or PROJECT / "inventories/lab").resolve()


@pytest.fixture(scope="session")
def inventory(inventory_path: Path) -> dict[str, Any]:
    """Return the lab's inventory as `ansible-inventory --list` prints it, which testinfra has read already."""
    return AnsibleRunner.get_runner(str(inventory_path)).inventory


@pytest.fixture(scope="session")
def node_names(inventory: dict[str, Any]) -> list[str]:
    """Return the names of the compute nodes in inventory order, which is the order of ranks."""
    return list(inventory["compute"]["hosts"])


def host_of(inventory_path: Path, name: str) -> Any:
    """Return the testinfra host of a node."""
    return testinfra.get_host(f"ansible://{name}?ansible_inventory={inventory_path}")


@pytest.fixture(scope="session")
def node(inventory_path: Path) -> Callable[[str], Any]:
    """Return a function that gives the testinfra host of a node."""
    return lambda name: host_of(inventory_path, name)


@pytest.fixture(scope="session")
def first(inventory_path: Path, node_names: list[str]) -> Any:
    """Return the testinfra host of the first node."""
    return host_of(inventory_path, node_names[0])


@pytest.fixture(scope="session")
def last_name(node_names: list[str]) -> str:
    """Return the name of the last node."""
    return node_names[-1]


@pytest.fixture(scope="session")
def last(inventory_path: Path, last_name: str) -> Any:
    """Return the testinfra host of the last node."""
    return host_of(inventory_path, last_name)


@pytest.fixture(scope="session")
def node_vars(inventory: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the variables of each node."""
    return inventory["_meta"]["hostvars"]


@pytest.fixture(scope="module")
def run_playbook(request: pytest.FixtureRequest, inventory_path: Path):
    """Run a playbook of the scenario's folder, of all scenarios (changed.yml) or of the project against the lab.

    `run_playbook("changed.yml", "--limit", "n1", trainyard_uid=0)`: positional arguments go to ansible-playbook,
    keywords become extra variables, except `inventory` (instead of the lab's) and `timeout` (seconds).
    Returns a PlaybookRun.
    """
    scenario = request.path.parent.parent

    def run(playbook: str, *arguments: str, inventory: Path = inventory_path, **more: Any) -> PlaybookRun:
        folder = next(each for each in (scenario, scenario.parent, PROJECT) if (each / playbook).exists())
        own = {"changed_role": scenario.name} if folder == scenario.parent else {}
        return ansible_playbook(folder / playbook, inventory, *arguments, **own, **more)

    return run


@pytest.fixture(scope="session")
def nodes(node_names: list[str]) -> dict[str, Node]:
    """Return the nodes by name, in inventory order."""
    return {name: Node(name) for name in node_names}


@pytest.fixture(scope="session")
def left(nodes: dict[str, Node]) -> Callable[[str], dict[str, list[int]]]:
    """Return a function that gives the remaining processes of a job: process ids by node, {} for none."""
    return lambda job_id: {name: pids for name, node in nodes.items() if (pids := node.processes(job_id))}


@pytest.fixture(scope="module")
def play(tmp_path_factory: pytest.TempPathFactory, inventory_path: Path) -> Iterator[Play]:
    """Start playbooks: `play("playbooks/stop.yml", job_id=...)`, `play.launch(WORKER, job_nodes=2)`."""
    player = Play(tmp_path_factory.mktemp("jobs"), inventory_path)
    yield player
    player.end()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]):
    """Add the last warnings of the node to the report of a failed test."""
    report = yield
    host = getattr(item, "funcargs", {}).get("host")
    if report.when == "call" and report.failed and host is not None:
        journal = host.run("sudo journalctl --no-pager --priority=warning --lines=30")
        report.sections.append((f"journal of {host.backend.get_hostname()}", journal.stdout))
    return report
