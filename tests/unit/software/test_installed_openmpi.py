"""Open MPI of a machine: its version and its place."""

import tempfile
from pathlib import Path

import pytest
from ansible.module_utils.trainyard.software.openmpi import open_mpi_version
from ansible.module_utils.trainyard_node.cluster.node_identity import fingerprint, read_node
from ansible.module_utils.trainyard_node.machine.tree import Tree
from ansible.module_utils.trainyard_node.software import installed_openmpi
from ansible.module_utils.trainyard_node.software.installed_openmpi import read_mpi, read_mpi_of

# Captured: `mpirun --version` of Debian 12 and Debian 13.
OPEN_MPI_4 = "mpirun (Open MPI) 4.1.4\n\nReport bugs to http://www.open-mpi.org/community/help/\n"
OPEN_MPI_5 = "mpirun (Open MPI) 5.0.7\n\nReport bugs to https://www.open-mpi.org/community/help/\n"
# Composed: MPICH's answer has the name of its process manager only.
MPICH = "HYDRA build details:\n    Version:                                 4.0.2\n"
PREFIX = "/opt/trainyard/openmpi"


@pytest.fixture
def machine(tmp_path):
    def make(output, *programs, status=0):
        for program in programs:
            path = tmp_path / program.lstrip("/")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("#!/bin/sh\n")
            path.chmod(0o755)
        commands = tmp_path / "commands"
        commands.mkdir()
        (commands / "mpirun.version.out").write_text(output)
        (commands / "mpirun.version.rc").write_text(f"{status}\n")
        return Tree(str(tmp_path))

    return make


def node(tree, prefix=PREFIX):
    return read_node(tree, packages=[], venv=None, user=None, mpi_prefix=prefix)


@pytest.mark.parametrize(
    ("output", "version"),
    [
        (OPEN_MPI_4, "4.1.4"),
        (OPEN_MPI_5, "5.0.7"),
        ("mpirun (Open MPI) 5.1.0rc2\n", "5.1.0rc2"),
        ("orterun (OpenRTE) 2.1.2rc4\n", "2.1.2rc4"),
        (MPICH, None),
        ("", None),
    ],
)
def test_the_version_is_read_from_the_answer(output, version):
    assert open_mpi_version(output) == version


@pytest.mark.parametrize(("output", "version"), [(OPEN_MPI_4, "4.1.4"), (OPEN_MPI_5, "5.0.7")])
@pytest.mark.parametrize("path", ["/usr/bin/mpirun", "/usr/lib64/openmpi/bin/mpirun"], ids=["path", "rhel"])
def test_the_systems_open_mpi_is_found(machine, output, version, path):
    assert node(machine(output, path))["mpi"] == {"version": version, "path": path}


def test_a_build_precedes_the_systems_open_mpi(machine):
    tree = machine(OPEN_MPI_5, "/usr/bin/mpirun", f"{PREFIX}/bin/mpirun")
    for prefix, path in (
        (PREFIX, f"{PREFIX}/bin/mpirun"),
        (None, "/usr/bin/mpirun"),
        ("/elsewhere", "/usr/bin/mpirun"),
    ):
        assert read_mpi(tree, prefix) == {"version": "5.0.7", "path": path}


@pytest.mark.parametrize(
    ("output", "status"),
    [(MPICH, 0), ("mpirun: error while loading shared libraries: libopen-rte.so.40\n", 127), (OPEN_MPI_4, 1)],
)
def test_another_or_a_broken_mpi_is_none(machine, output, status):
    assert read_mpi(machine(output, "/usr/bin/mpirun", status=status), PREFIX) is None


def test_beside_another_mpi_debians_second_name_counts(monkeypatch):
    """Real programs in a folder, and no Open MPI of this machine."""
    monkeypatch.setattr(installed_openmpi, "_FOLDERS", ())
    monkeypatch.setenv("PATH", "")
    # Not below pytest's own folder, which only its user enters: root has them run by nobody.
    with tempfile.TemporaryDirectory(dir="/tmp") as prefix:
        folder = Path(prefix, "bin")
        folder.mkdir()
        folder.parent.chmod(0o755)
        for name, output in (("mpirun", MPICH), ("mpirun.openmpi", OPEN_MPI_4)):
            program = folder / name
            program.write_text(f"#!/bin/sh\necho '{output}'\n")
            program.chmod(0o755)
        assert read_mpi(Tree(), prefix) == {"version": "4.1.4", "path": f"{folder}/mpirun.openmpi"}


def test_a_machine_without_mpi_has_none(machine):
    assert node(machine(OPEN_MPI_4))["mpi"] is None


def test_another_open_mpi_is_another_machine_for_kept_facts(machine):
    tree = machine(OPEN_MPI_4, "/usr/bin/mpirun")
    first = node(tree)
    assert fingerprint(first) == first["fingerprint"]
    tree.path("commands/mpirun.version.out").write_text(OPEN_MPI_5)
    assert node(tree)["fingerprint"] != first["fingerprint"]


def test_an_existing_open_mpi_is_read_from_its_prefix(machine):
    ofed = "/usr/mpi/gcc/openmpi-4.1.7a1"
    tree = machine(OPEN_MPI_4, f"{ofed}/bin/mpirun", "/usr/bin/mpirun")
    assert read_mpi_of(tree, ofed) == {"version": "4.1.4", "path": f"{ofed}/bin/mpirun"}
    library = tree.path(f"{ofed}/lib64/libmpi.so")
    library.parent.mkdir()
    library.touch()
    assert read_mpi_of(tree, ofed) == {"version": "4.1.4", "path": f"{ofed}/bin/mpirun", "lib": f"{ofed}/lib64"}
    assert read_mpi_of(tree, "/opt/hpcx/ompi") is None and read_mpi_of(tree, "") is None
