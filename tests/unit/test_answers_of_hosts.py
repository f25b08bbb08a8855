"""An answer decides about its host alone: each place that combines answers or reads other hosts' variables is known."""

from __future__ import annotations

import ast
import functools
import re
from pathlib import Path

import yaml
from filters import FILTERS

PROJECT = Path(__file__).resolve().parents[2]
BOOKS = sorted(path for name in ("roles", "playbooks") for path in (PROJECT / name).rglob("*.yml"))
# Filters of other hosts' variables that read only what the inventory or the playbook itself has set, and those that
# call the function for answers with a shape of their own.
OF_INVENTORY = {"vars_of", "declared_addresses", "hosts_with"}
BY_THEMSELVES = {"findings_of_hosts", "nvidia_upgrade_entries"}
# Other readings of hosts' variables: those of the inventory, and what a task of the controller has set.
READS = {
    "roles/job/tasks/prepare.yml": "hostvars[(__job_hosts or ['localhost']) | first]",
    "roles/verify/tasks/benchmark.yml": "hostvars[(__hosts or ['localhost']) | first]",
    "roles/verify/vars/main.yml": "hostvars[groups['compute'][0]]['__provision_verified']",
    "playbooks/nvidia_upgrade.yml": "hostvars['localhost']['__nvidia_driver_upgrade_batches']",
    "playbooks/nvidia_reboot.yml": "hostvars[(groups['nvidia'] | default(['localhost'], true)) | first]",
    "playbooks/verify_role.yml": "hostvars['localhost']['__verify_asked']",
}
# Python that reads the variables of other hosts: connections, requests of a role, and the one function for answers.
READERS = {"action_plugin.py", "fan_out.py", "filters.py", "site_locking.py", "debug_archive.py"}


def texts(value):
    """Yield all texts of a document, with the keys above them."""
    if isinstance(value, dict):
        for key, each in value.items():
            yield from ((f"{key}: {text}" if isinstance(each, str) else text) for text in texts(each))
    elif isinstance(value, list):
        for each in value:
            yield from texts(each)
    elif isinstance(value, str):
        yield value


@functools.cache
def documents():
    """Return what each book says, by its path."""
    return {str(path.relative_to(PROJECT)): yaml.safe_load(path.read_text()) for path in BOOKS}


def templates():
    for path, document in documents().items():
        for text in texts(document):
            yield path, " ".join(text.split())


def blocks(value):
    """Yield all mappings of a document."""
    for each in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from blocks(each)
    if isinstance(value, dict):
        yield value


def test_a_host_that_did_not_fail_gives_no_reason():
    """Where an error of one host is fatal for all, the tasks of `rescue` run on all of them."""
    found = [
        (path, task)
        for path, document in documents().items()
        for block in blocks(document)
        for task in (() if block.get("run_once") else block.get("rescue", ()))
        if "ansible_failed_" in str(task.get("ansible.builtin.fail", ""))
    ]
    assert len(found) >= 5
    assert [path for path, task in found if task.get("when") != "ansible_failed_result is defined"] == []


def test_whoever_gets_the_variables_of_all_hosts_reads_declared_answers():
    called = {(path, name) for path, text in templates() for name in re.findall(r"\b(\w+)\(hostvars\b", text)}
    assert len(called) > 15
    known = OF_INVENTORY | BY_THEMSELVES | {name for name, each in FILTERS.items() if hasattr(each, "source")}
    assert {(path, name) for path, name in called if name not in known} == set()
    lies = {"n1": {"__read": {"host": "n2", "findings": 1}, "__nvidia_driver_upgrade_entry": 1}}
    found = FILTERS["findings_of_hosts"](["n1"], lies, "__read.findings")
    assert [(each["host"], each["check"]) for each in found] == [("n1", "answer")]
    ((host, entry),) = FILTERS["nvidia_upgrade_entries"](["n1"], lies).items()
    assert (host, entry["state"]) == ("n1", "failed")


def test_filters_of_answers_read_them_themselves():
    reading = {name for name, each in FILTERS.items() if hasattr(each, "source")}
    called = {name for _, text in templates() for name in re.findall(r"\b(\w+)\(hostvars\b", text)}
    assert reading - called == set() and len(reading) > 15


def test_no_template_combines_variables_of_hosts_by_itself():
    found = {(path, text) for path, text in templates() if "extract', hostvars" in text}
    # The variable of the inventory by which the page of a verification groups nodes; what the controller compared.
    assert {path for path, _ in found} == {"roles/verify/vars/main.yml", "playbooks/validate.yml"}
    assert {
        text for path, text in found if path == "playbooks/validate.yml" and "'__validate_held'" not in text
    } == set()
    for path, text in templates():
        for read in re.findall(r"hostvars\[.*", text):
            assert read.startswith(READS.get(path, "nothing")), f"{path}: {text}"


def test_variables_of_other_hosts_that_are_read_as_they_are_come_from_the_inventory():
    names = {name for _, text in templates() for name in re.findall(r"vars_of\(hostvars, (\[[^]]*\])", text)}
    assert names == {"['ansible_host', 'ssh_mesh_extra_principals']"}


def test_nothing_that_a_host_answers_is_a_path_on_the_controller():
    """`os_family` could lead to a file that the host sent home, which would be read with its templates."""
    paths = r"^(ansible\.builtin\.)?(include_vars|include_tasks|import_tasks|src|file): |lookup\(|query\("
    found = [(path, text) for path, text in templates() if re.search(paths, text) and "ansible_facts" in text]
    assert found == []


def files(*folders):
    return sorted(path for folder in folders for path in (PROJECT / folder).rglob("*.py"))


def constants(path):
    return {node.value for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Constant)}


def test_code_that_reads_variables_of_other_hosts_is_known():
    found = files("plugins", "module_utils/trainyard_controller")
    assert {path.name for path in found if "hostvars" in constants(path)} == READERS


def test_no_action_keeps_its_state_in_facts():
    # The system that the inventory gives a host that is not visited.
    assert [path.stem for path in files("plugins/action") if "ansible_facts" in constants(path)] == ["system_facts"]
