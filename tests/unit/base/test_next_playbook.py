"""What follows each playbook of the project."""

from pathlib import Path

import pytest
from ansible.module_utils.trainyard.report import next_playbook

PROJECT = Path(__file__).resolve().parents[3]
# These end with a text of their own, or are parts of others.
OWN = {"site.yml", "verify.yml", "launch.yml", "watch.yml", "status.yml", "logs.yml", "stop.yml", "stacks.yml"}
OWN |= {"hostfile.yml", "rank_table.yml", "compare.yml", "bundle_leave.yml", "verify_role.yml"}


def test_every_playbook_has_what_follows():
    books = {path.name for path in [*PROJECT.glob("*.yml"), *PROJECT.glob("playbooks/*.yml")]}
    books -= {"execution-environment.yml", "ansible-navigator.yml", "requirements.yml"}
    assert {name for name in books if not next_playbook.after(name, "-i mine")} == OWN


def test_the_named_playbooks_exist():
    for name in (PROJECT / "playbooks").glob("*.yml"):
        words = next_playbook.after(name.name, "-i mine").split()
        assert all((PROJECT / word).exists() for word in words if word.endswith(".yml"))


@pytest.mark.parametrize(
    ("name", "preview_of", "text"),
    [
        (
            "provision.yml",
            "",
            "next  verify that the nodes can train\n      ansible-playbook playbooks/verify.yml -i mine",
        ),
        ("site.yml", "ansible-playbook site.yml -i mine", "next  do it\n      ansible-playbook site.yml -i mine"),
        ("launch.yml", "ansible-playbook launch.yml -e token=(hidden)", "next  the same without --check"),
        ("debug.yml", "", "next  attach the archive to the issue"),
        ("status.yml", "ansible-playbook status.yml", ""),
    ],
)
def test_the_line(name, preview_of, text):
    assert next_playbook.after(name, "-i mine", preview_of) == text
