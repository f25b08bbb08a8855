"""The fake of NVIDIA's repository and NCCL are there while this scenario is tested, and gone afterwards."""

import json

import pytest
from lab_jobs import PROJECT, ansible_playbook

FOLDER = "/srv/nvidia-fake"


@pytest.fixture(scope="session", autouse=True)
def clean(inventory_path):
    """Other scenarios share the nodes, and must find neither packages nor holds, pins and sources."""
    yield
    ansible_playbook(PROJECT / "molecule/nccl/clean.yml", inventory_path).expect(0)


@pytest.fixture(scope="session")
def fingerprints(first):
    """Fingerprints of the fake's keys."""
    return json.loads(first.file(f"{FOLDER}/fingerprints.json").content_string)


@pytest.fixture(scope="session")
def folder(first):
    """Folder of the repository on the first node."""
    return first.check_output(f"dirname {FOLDER}/www/*/*/Release")


@pytest.fixture(scope="session")
def uri(node_names, node_vars, folder):
    """Address of the repository."""
    return f"http://{node_vars[node_names[0]]['ansible_host']}:8099{folder.removeprefix(FOLDER + '/www')}"


@pytest.fixture(scope="session")
def source(first, node_names, folder, uri, fingerprints):
    """Arguments of nvidia_repository that add the fake."""
    key = first.check_output(f"basename {folder}/*.pub")
    return {
        "step": "add",
        "host": node_names[-1],
        "provider": "network_repo",
        "uri": uri,
        "key_url": f"{uri}/{key}",
        "fingerprints": [fingerprints["nvidia"]],
    }


@pytest.fixture
def published(first, folder):
    """The folder of the repository; what a test changes in it is put back."""
    first.check_output(f"sudo cp -a {folder} {FOLDER}/kept")
    yield folder
    first.check_output(f"sudo rm -r {folder} && sudo mv {FOLDER}/kept {folder}")


@pytest.fixture(scope="session")
def call(last):
    """Return a function that runs a module on the last node, in check mode unless told otherwise.

    Gives its result, also where it failed.
    """

    def run(module, arguments, check=True):
        try:
            return last.ansible(module, json.dumps(arguments), check=check, become=True)
        except last.ansible.AnsibleException as error:
            return error.result

    return run


@pytest.fixture(scope="session")
def packages(call, node_names, uri):
    """Return a function that installs packages for the owner nccl with these versions by name."""

    def run(versions, check=True, **others):
        arguments = {
            "step": "install",
            "host": node_names[-1],
            "owner": "nccl",
            "provider": "network_repo",
            "uri": uri,
            "packages": [{"name": name, "version": version} for name, version in versions.items()],
        }
        return call("nvidia_repository", arguments | others, check)

    return run


@pytest.fixture(scope="session")
def have(last):
    """Return a function that tells versions and holds of NCCL's packages on the last node."""

    def read():
        lines = last.check_output(
            "dpkg-query --show --showformat='${Package} ${Version} ${db:Status-Want}\\n' 'libnccl*' || true"
        ).splitlines()
        return {name: (version, want) for name, version, want in map(str.split, lines)}

    return read
