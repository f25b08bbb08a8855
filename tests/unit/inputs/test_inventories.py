"""Calls without an inventory, or with one that does not exist: nothing runs."""

from pathlib import Path

import pytest
from ansible.module_utils.trainyard.inputs import inventories
from ansible_run import PROJECT

LOCAL = "compute: {hosts: {n1: {ansible_connection: local}}}\n"


@pytest.fixture
def call(playbook):
    def run(book, *arguments, **how):
        return playbook(book, *arguments, inventory=None, **how)

    return run


def test_a_playbook_without_an_inventory_names_two_commands(call):
    run = call("playbooks/status.yml")
    run.expect(2, "1 finding in what was given. Nothing was done.", "found none: neither -i nor ANSIBLE_INVENTORY")
    for where in ("inventories/localhost", "INVENTORY"):
        assert f"ansible-playbook playbooks/status.yml -i {where}" in run.text


def test_findings_of_a_job_file_come_with_the_missing_inventory(call):
    run = call("launch.yml", "-i", "", "-e", "@jobs/digit.yml", "-e", "job_secret_env={A: hush}")
    run.expect(2, "2 findings in what was given.", "did you mean jobs/digits.yml?", "inventory found an empty -i")
    assert "hush" not in run.text


@pytest.mark.parametrize(
    ("arguments", "env", "name", "action"),
    [
        (["-i", "hosts.yml", "-i", "hosts.yaml"], {}, "hosts.yaml", "did you mean hosts.yml?"),
        ([], {"ANSIBLE_INVENTORY": "gone"}, "gone", "correct ANSIBLE_INVENTORY, or name one with -i"),
    ],
)
def test_a_missing_inventory_is_one_finding(call, write, tmp_path, arguments, env, name, action):
    write({"hosts.yml": LOCAL})
    run = call(str(PROJECT / "launch.yml"), *arguments, cwd=tmp_path, **env)
    run.expect(2, "1 finding in what was given.", f"inventory found no file or folder {name} expected", f"do {action}")


def test_the_environment_and_lists_of_hosts_name_an_inventory(call, tmp_path):
    """AWX and Molecule name theirs with -i, where it may be a folder, a list or a script."""
    (tmp_path / "hosts.yml").write_text(LOCAL)
    book = str(PROJECT / "playbooks/status.yml")
    runs = ["-e", f"trainyard_runs={tmp_path}/runs", "-e", "trainyard_become=false"]
    for arguments, env in (([], {"ANSIBLE_INVENTORY": str(tmp_path)}), (["-i", "n1,"], {})):
        run = call(book, *arguments, *runs, cwd=tmp_path, **env)
        assert "No run at all was started" in run.text and "inventory" not in run.text


def test_compare_needs_no_inventory(call, tmp_path):
    run = call("playbooks/compare.yml", "-e", f"trainyard_runs={tmp_path}")
    assert "has no report of a verification" in run.text and "WARNING" not in run.text
    assert call("launch.yml", "--syntax-check").text == "playbook: launch.yml"


def test_the_projects_folder_is_not_an_inventory(call):
    run = call("site.yml", "-i", ".")
    run.expect(2, "the folder of the project expected an inventory")
    assert "WARNING" not in run.text


@pytest.mark.parametrize(
    ("arguments", "empty"),
    [
        (["launch.yml", "-i", ""], True),
        (["launch.yml", "--inventory="], True),
        (["launch.yml", "--inventory", "", "-C"], True),
        (["launch.yml", "-i", "x", "-e", ""], False),
        (["launch.yml"], False),
    ],
)
def test_an_empty_option_is_left_out_of_the_commands(arguments, empty):
    assert inventories.is_empty(arguments) is empty
    if empty:
        assert "''" not in inventories.not_named(arguments, "inventories/localhost").action


INI = "[compute]\nn1\nn2\n\n[compute:var]\nansible_user=admin\n"
FLOW = "compute:\n  hosts:\n    w[01:08]: {}\n  children:\n    gpus: {hosts: { gpu[01:04]: {} }}\n"


def unparsed(path, *sources):
    """Return the findings for a file; this needs a process that is a controller."""
    from ansible.module_utils.trainyard_controller.inputs.input_files import unparsed

    return unparsed(path, sources, lambda name: Path(name).name)


@pytest.mark.parametrize(
    ("name", "text", "found", "expected"),
    [
        ("hosts", INI, "hosts, line 5: [compute:var]", "an inventory in INI: Section [compute:var] has unknown"),
        ("hosts", f"\ufeff{INI}", "hosts, line 1", "no byte order mark before the first line"),
        ("hosts.yml", "plugin: no_such\n", "hosts.yml: the plugin that it names is missing", "an inventory that"),
        ("hosts.ini", "[all:children]\ngone\n", "hosts.ini, line 2", "includes undefined group 'gone'"),
        ("hosts.ini", "[compute]\nn1 password = x\n", "hosts.ini, line 2", "Expected key=value"),
        ("hosts.yml", FLOW, "hosts.yml, line 5: gpus: {hosts: { gpu[01:04]: {} }}", "YAML: "),
        ("hosts", "---\nall: {hosts: {'n[3:1': }}\n", "hosts: ", "an inventory that Ansible reads whole"),
        ("hosts.toml", "[", "hosts.toml: no plugin of Ansible could read it", "an inventory that Ansible reads whole"),
    ],
)  # fmt: skip
def test_an_inventory_that_cannot_be_read_whole_is_a_finding(controller, tmp_path, name, text, found, expected):
    (tmp_path / name).write_text(text)
    (finding,) = controller.submit(unparsed, tmp_path / name).result()
    assert finding.found.startswith(found) and expected in finding.expected and "password" not in finding.found


def test_inventories_that_cannot_be_read_whole_end_a_playbook_with_all_of_them(call, write, tmp_path):
    write({"a": INI, "b.yml": "compute: [\n", "c.yml": LOCAL, "d.yml": "plugin: no_such\n", "e.bak": INI, "f": "n1\n"})
    run = call("playbooks/status.yml", "-i", str(tmp_path))
    run.expect(
        2, "2 findings in what was given. Nothing was done.", "a, line 5: [compute:var] expected", "b.yml, line 2"
    )
    assert "WARNING" not in run.text


def test_wrong_values_for_a_connection_are_findings_on_all_hosts(call, write, here):
    ciphertext = "\n".join(["$ANSIBLE_VAULT;1.1;AES256", *["3133"] * 4])
    lines = [
        "compute:", "  vars:", '    ansible_become_password: "{{ vaulted }}"', '    ansible_host: "10.0.0.{{ item }}"',
        "    ansible_connection: shh", "    ansible_become_method: sodo", "  hosts:", "    n1: {ansible_port: 22a}",
        "    n2: {ansible_become: perhaps, ansible_shell_type: sh, ansible_user: '{{ 1/0 }}'}",
        "    n3:", "      ansible_password: !vault |",
    ]  # fmt: skip
    write({"hosts.yml": "\n".join([*lines, *(f"        {line}" for line in ciphertext.splitlines())]) + "\n"})
    file = f"in {here}/hosts.yml, line"
    call("playbooks/status.yml", "-i", f"{here}/hosts.yml").expect(
        2,
        "8 findings in what was given. Nothing was done.",
        f"no variable vaulted, which stands in ansible_become_password {file} 3",
        "in an encrypted file of group_vars, or leave ansible_become_password out and add -K",
        f"no variable item, which stands in ansible_host {file} 4",
        f"ansible_connection: shh {file} 5 expected a plugin of Ansible: local, psrp, ssh, winrm do did you mean ssh?",
        f"ansible_become_method: sodo {file} 6",
        f"ansible_port: 22a {file} 8 expected a port, 1 to 65535",
        f"ansible_become: perhaps {file} 9 expected true or false",
        f"{{{{ 1/0 }}}} {file} 9: Error rendering template: division by zero",
        f"ansible_password {file} 11 is encrypted, and there is no password",
    )


def test_wrong_values_for_a_connection_may_come_from_the_command_line(call, write, here):
    write({"hosts.yml": "compute: {hosts: {n1: {ansible_connection: local, ansible_user: '{{ gone }}'}}}\n"})
    write({"job.yml": "ansible_port: 22a\n"})
    options = ["-e", "ansible_connection=locl", "-e", "{ansible_user: '{{ nope }}'}", "-e", f"@{here}/job.yml"]
    run = call("playbooks/status.yml", "-i", f"{here}/hosts.yml", *options)
    run.expect(
        2,
        "3 findings in what was given. Nothing was done.",
        "no variable nope, which stands in ansible_user on the command line",
        "ansible_connection: locl on the command line expected a plugin of Ansible: local, psrp, ssh, winrm do did you",
        f"ansible_port: 22a in {here}/job.yml, line 1 expected a port, 1 to 65535",
    )
