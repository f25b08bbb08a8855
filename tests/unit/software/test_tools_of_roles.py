"""What roles ask an administrator for where they may install no packages."""

import json

import pytest
from plays import PROJECT, play

WHEEL, OF_DISTRO = {"provider": "wheel", "version": "13.0"}, {"provider": "distro"}
COMPILED = ["gcc", "g++", "make", "perl", "tar"]


@pytest.mark.parametrize(
    ("role", "given", "tools"),
    [
        ("openmpi", {"openmpi_provider": "source"}, [*COMPILED, "bzip2"]),
        ("openmpi", {"openmpi_provider": "source", "openmpi_url": "file:///a.tar.xz"}, [*COMPILED, "xz"]),
        ("openmpi", {"openmpi_provider": "existing", "openmpi_prefix": "/opt/mpi"}, []),
        ("openmpi", {"openmpi_provider": "source", "openmpi_manage_system": True}, []),
        ("cuda_toolkit", {"cuda_toolkit_versions": [WHEEL]}, ["g++"]),
        ("cuda_toolkit", {"cuda_toolkit_versions": [WHEEL], "cuda_toolkit_host_compiler": "g++-11"}, ["g++-11"]),
        ("cuda_toolkit", {"cuda_toolkit_versions": [OF_DISTRO]}, []),
    ],
)
def test_tools_that_roles_need(tmp_path, role, given, tools):
    request = {"openmpi": "__openmpi_can_install", "cuda_toolkit": "__cuda_toolkit_request"}[role]
    text = f"""
- hosts: compute
  gather_facts: false
  vars_files: [{PROJECT}/roles/{role}/defaults/main.yml, {PROJECT}/roles/{role}/vars/main.yml]
  tasks:
    - copy: {{dest: "{tmp_path}/found", content: "{{{{ {request}.system | map(attribute='file') | to_json }}}}"}}
"""
    settings = {"trainyard_manage_system": False, "trainyard_root": "/opt/trainyard", **given}
    done = play(tmp_path, text, {"n1": {}}, "--extra-vars", json.dumps(settings))
    assert done.returncode == 0, done.stdout
    assert json.loads((tmp_path / "found").read_text()) == tools
