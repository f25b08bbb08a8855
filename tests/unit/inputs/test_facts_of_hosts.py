"""Each host has facts of its own, also where a task with run_once has set the first ones for all."""

import textwrap

from ansible_run import run_ansible

PLAY = """
    - hosts: all
      gather_facts: false
      tasks:
        - ansible.builtin.set_fact: {first: 1, cacheable: true}
          run_once: true
        - ansible.builtin.set_fact: {own: "{{ inventory_hostname }}", cacheable: true}
        - ansible.builtin.assert:
            that: ["ansible_facts.own == inventory_hostname", "hostvars['a'].ansible_facts.own == 'a'"]
"""


def test_a_fact_of_one_host_is_not_that_of_all(tmp_path):
    (tmp_path / "play.yml").write_text(textwrap.dedent(PLAY))
    (tmp_path / "hosts.yml").write_text("all: {hosts: {a: {}, b: {}, c: {}}}\n")
    run_ansible("ansible-playbook", "-i", str(tmp_path / "hosts.yml"), str(tmp_path / "play.yml")).expect(0)
