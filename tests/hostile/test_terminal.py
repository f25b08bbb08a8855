"""What nodes, ranks and files say on the operator's terminal: nothing of it steers the terminal."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from ansible.module_utils.trainyard.base.visible import as_overwritten, visible, visible_but_colours

PROJECT = Path(__file__).resolve().parents[2]
# Write the clipboard; up a line and clear it, then a success; text in another order; C1's own introducer; concealed.
EVIL = (
    "\x1b]52;c;cm0gLXJmIH4=\x07\x1b[1A\x1b[2K\x1b[0;32mjob succeeded\x1b[0m\u202egnp.exe\u2066\x9b31m\x1b[8mhid\rden"
    "\x00\x08"
)
SHOWN = (
    r"\x1b]52;c;cm0gLXJmIH4=\x07\x1b[1A\x1b[2K\x1b[0;32mjob succeeded\x1b[0m\u202egnp.exe\u2066\x9b31m\x1b[8mhid\rden"
    r"\x00\x08"
).replace(r"\r", r"\x0d")
STEERS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def test_what_steers_a_terminal_is_shown():
    assert visible(EVIL) == SHOWN
    assert visible("a\tb\r\nc\n\ud800é日本 👩\u200d💻") == "a\tb\nc\n\\ud800é日本 👩\u200d💻"
    # Nothing of what is shown is shown anew.
    assert visible(SHOWN) == SHOWN


def test_only_plain_colours_are_let_through():
    assert visible_but_colours("\x1b[0;32mok\x1b[0m\x1b[8m\x1b[0;32;8m\x1b]0;x\x07") == (
        r"[G]ok[0]\x1b[8m\x1b[0;32;8m\x1b]0;x\x07".replace("[G]", "\x1b[0;32m").replace("[0]", "\x1b[0m")
    )


def test_a_bar_of_progress_is_shown_as_it_stands_in_the_end(tmp_path):
    assert as_overwritten("10%\r20%\r30%") == "... 30%"
    assert (as_overwritten("done\r"), as_overwritten("\rdone"), as_overwritten("")) == ("done", "done", "")


def test_the_last_lines_of_a_log_are_few_and_short(tmp_path):
    code = (
        "import sys; from pathlib import Path; import ansible.module_utils as m; m.__path__.append(sys.argv[1]);"
        "from ansible.module_utils.trainyard_controller.job.reporting import last_lines;"
        "import json; print(json.dumps(last_lines(Path(sys.argv[2]))))"
    )
    log = tmp_path / "rank_0.log"
    log.write_bytes(b"x" * (3 << 20) + b"\n1%\r2%\r3%\na\x0cb\xe2\x80\xa8c\n")
    run = subprocess.run(["python", "-c", code, PROJECT / "module_utils", log], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    *_, long, bar, last = json.loads(run.stdout)
    assert (len(long), bar, last) == (1004, "... 3%", "a\x0cb\u2028c")


PLAYS = """
- hosts: all
  gather_facts: false
  tasks:
    - ansible.builtin.debug:
        msg: "said {{ evil }}"
    - ansible.builtin.copy:
        content: "{{ evil }}\\n"
        dest: "{{ folder }}/file"
        mode: "0600"
      diff: true
    - ansible.builtin.command:
        cmd: cat {{ folder }}/file
      register: told
      changed_when: true
    - ansible.builtin.fail:
        msg: "failed {{ told.stdout }}"
"""


@pytest.mark.parametrize("quiet", [False, True])
def test_nothing_of_a_playbook_steers_the_terminal(tmp_path, quiet):
    plays = PLAYS.replace("gather_facts", f"vars: {{trainyard_quiet: {quiet}}}\n  gather_facts")
    (tmp_path / "play.yml").write_text(plays)
    given = json.dumps({"evil": EVIL.replace("\r", "").replace("\x00", ""), "folder": str(tmp_path)})
    inventory = tmp_path / "hosts.yml"
    host = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}
    inventory.write_text(json.dumps({"all": {"hosts": {"n1": host}}}))
    environment = {**os.environ, "ANSIBLE_CONFIG": f"{PROJECT}/ansible.cfg", "ANSIBLE_FORCE_COLOR": "1"}
    command = ["ansible-playbook", "-i", inventory, tmp_path / "play.yml", "-v", "-e", given]
    run = subprocess.run(command, cwd=PROJECT, env=environment, capture_output=True, timeout=300)
    said = (run.stdout + run.stderr).decode("utf-8", "surrogateescape")
    assert run.returncode == 2
    assert r"said \x1b]52;c;" in said and r"failed \x1b]52;c;" in said, said
    # The other sequences are Ansible's own colors.
    rest = re.sub(r"\x1b\[(?:0|[01];3[0-7])m", "", said)
    assert not STEERS.search(rest), ascii(rest)
    assert ("\x1b[0;31mfailed=1" in said) == (not quiet)
    # The file has every byte.
    assert "\x1b]52;c;" in (tmp_path / "file").read_text()
