"""What roles ask an administrator for where they may install no packages."""

import json

from plays import PROJECT, play

WHEEL, OF_DISTRO = {"provider": "wheel", "version": "13.0"}, {"provider": "distro"}
COMPILED = ["gcc", "g++", "make", "perl", "tar"]
REQUESTS = {"openmpi": "__openmpi_can_install", "cuda_toolkit": "__cuda_toolkit_request"}
CASES = [
    ("openmpi", {"openmpi_provider": "source"}, [*COMPILED, "bzip2"]),
    ("openmpi", {"openmpi_provider": "source", "openmpi_url": "file:///a.tar.xz"}, [*COMPILED, "xz"]),
    ("openmpi", {"openmpi_provider": "existing", "openmpi_prefix": "/opt/mpi"}, []),
    ("openmpi", {"openmpi_provider": "source", "openmpi_manage_system": True}, []),
    ("cuda_toolkit", {"cuda_toolkit_versions": [WHEEL]}, ["g++"]),
    ("cuda_toolkit", {"cuda_toolkit_versions": [WHEEL], "cuda_toolkit_host_compiler": "g++-11"}, ["g++-11"]),
    ("cuda_toolkit", {"cuda_toolkit_versions": [OF_DISTRO]}, []),
]


def test_tools_that_roles_need(tmp_path):
    tasks = [
        {
            "copy": {
                "dest": f"{tmp_path}/found{number}",
                "content": f"{{{{ {REQUESTS[role]}.system | map(attribute='file') | to_json }}}}",
            },
            "vars": {"trainyard_manage_system": False, "trainyard_root": "/opt/trainyard", **given},
        }
        for number, (role, given, _) in enumerate(CASES)
    ]
    files = [f"{PROJECT}/roles/{role}/{kind}/main.yml" for role in REQUESTS for kind in ("defaults", "vars")]
    book = [{"hosts": "compute", "gather_facts": False, "vars_files": files, "tasks": tasks}]
    done = play(tmp_path, json.dumps(book), {"n1": {}})
    assert done.returncode == 0, done.stdout
    found = [json.loads((tmp_path / f"found{number}").read_text()) for number in range(len(CASES))]
    assert found == [tools for _, _, tools in CASES]
