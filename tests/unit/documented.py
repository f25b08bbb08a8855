"""The documentation of every variable (the argument_specs of the playbooks and roles), and the smallest inventory."""

from pathlib import Path

import yaml
from ansible.module_utils.trainyard.inputs import input_variables

PROJECT = Path(__file__).resolve().parents[2]
ROLES = {path.parts[-3]: path for path in sorted(PROJECT.glob("roles/*/meta/argument_specs.yml"))}
SPECS = {
    role: yaml.safe_load(path.read_text())["argument_specs"]
    for role, path in {"": PROJECT / "playbooks/meta/argument_specs.yml", **ROLES}.items()
}
KNOWN = input_variables.table(SPECS)
HERE = '{ansible_connection: local, ansible_python_interpreter: "{{ ansible_playbook_python }}"}'
SMALLEST = f"compute: {{hosts: {{n1: {HERE}}}}}\n"
