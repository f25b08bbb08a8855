"""Root on the node that builds, against the nodes that get a copy of what it built."""

import io
import os
import subprocess
import tarfile

import pytest
from ansible.module_utils.trainyard_controller.bundle.built_archives import rewrite
from ansible.module_utils.trainyard_node.machine.tree import Tree
from ansible.module_utils.trainyard_node.software.installed_openmpi import read_mpi_of

LIBRARY = "./lib/libmpi.so.40"


def member(name, kind=tarfile.REGTYPE, link="", **fields):
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.mode = kind, link, 0o755
    for field, value in fields.items():
        setattr(info, field, value)
    return info


HONEST = [
    member(".", tarfile.DIRTYPE),
    # A folder below one with the bit has it as well, as those in Debian's /usr/local do.
    member("./lib", tarfile.DIRTYPE, mode=0o2755),
    member(LIBRARY, size=3),
    member("./lib/libmpi.so", tarfile.SYMTYPE, "libmpi.so.40"),
    member("./bin", tarfile.DIRTYPE),
    member("./bin/mpirun", size=3, mode=0o777),
    member("./bin/orterun", tarfile.LNKTYPE, "./bin/mpirun"),
    member("./bin/up", tarfile.SYMTYPE, "../lib/libmpi.so"),
]


@pytest.fixture
def receive(tmp_path):
    def run(members):
        with tarfile.open(tmp_path / "n1.tar.gz", "w:gz") as archive:
            for info in members:
                archive.addfile(info, io.BytesIO(b"ELF"[: info.size]) if info.isreg() else None)
        return rewrite("n1", tmp_path / "n1.tar.gz")

    return run


@pytest.mark.parametrize(
    ("planted", "found"),
    [
        (member("./bin/sh", mode=0o4755), "'./bin/sh' with mode 4755"),
        (member("./bin/sh", mode=0o2755), "'./bin/sh' with mode 2755"),
        (member("./bin/inner", tarfile.DIRTYPE, mode=0o4755), "'./bin/inner' with mode 4755"),
        (member("./bin/sda", tarfile.BLKTYPE, devmajor=8), "'./bin/sda', which is no file, folder or link"),
        (member("./bin/null", tarfile.CHRTYPE), "'./bin/null', which is no file, folder or link"),
        (member("./bin/pipe", tarfile.FIFOTYPE), "'./bin/pipe', which is no file, folder or link"),
        (member("/etc/cron.d/x"), "'/etc/cron.d/x', which leaves the folder"),
        (member("./bin/../../x"), "'./bin/../../x', which leaves the folder"),
        (member("./bin/x", tarfile.SYMTYPE, "/etc/shadow"), "'./bin/x', a link to '/etc/shadow'"),
        (member("./bin/x", tarfile.SYMTYPE, "../../x"), "'./bin/x', a link to '../../x'"),
        # Inside by its letters alone: ./bin/up leads to another folder.
        (member("./bin/x", tarfile.SYMTYPE, "up/../x"), "'./bin/x', a link to 'up/../x'"),
        (member("./bin/x", tarfile.LNKTYPE, "/etc/shadow"), "'./bin/x', a link to '/etc/shadow'"),
        (member("./bin/x", tarfile.LNKTYPE, "./bin/up"), "'./bin/x', a link to './bin/up'"),
        (member("./bin/up/x"), "'./bin/up/x', which lies behind a link"),
        (member(LIBRARY), f"'{LIBRARY}', which comes twice"),
        (member("./bin/x", uid=1000), "'./bin/x' of user 1000 and group 0"),
        (member("./bin/x", gid=50), "'./bin/x' of user 0 and group 50"),
    ],
)
def test_what_could_harm_another_node_is_refused(receive, tmp_path, planted, found):
    assert [(each.host, each.found) for each in receive([*HONEST, planted])] == [("n1", found)]
    assert not list(tmp_path.iterdir())


def test_all_that_is_wrong_with_an_archive_is_one_finding(receive):
    (finding,) = receive([*HONEST, *(member(f"./bin/{number}", mode=0o4755) for number in range(9))])
    assert finding.found == (
        "'./bin/0' with mode 4755; './bin/1' with mode 4755; './bin/2' with mode 4755; 6 more like these"
    )


def test_what_is_no_archive_is_refused(tmp_path):
    (tmp_path / "n1.tar.gz").write_bytes(b"\x1f\x8bno archive")
    (finding,) = rewrite("n1", tmp_path / "n1.tar.gz")
    assert finding.found.startswith("no archive that can be read: ")


def test_a_name_steers_no_terminal(receive):
    assert "\x1b" not in receive([*HONEST, member("./bin/\x1b]0;x", mode=0o4755)])[0].found


def test_nodes_unpack_what_the_controller_wrote(receive, tmp_path):
    """Nothing else that the builder's archive holds reaches tar on the other nodes."""
    members = [*HONEST, member("./bin/caps", size=3, pax_headers={"SCHILY.xattr.security.capability": "\x01"})]
    assert receive(members) == []
    (tmp_path / "to").mkdir()
    subprocess.run(["tar", "-xzf", tmp_path / "n1.tar.gz", "-C", tmp_path / "to"], check=True)
    to = tmp_path / "to"
    assert (to / LIBRARY).read_bytes() == (to / "lib/libmpi.so").read_bytes() == b"ELF"
    assert (to / "bin/orterun").stat().st_ino == (to / "bin/mpirun").stat().st_ino
    assert {path.lstat().st_mode & 0o7777 for path in (to, *to.rglob("*")) if not path.is_symlink()} == {0o755}
    with tarfile.open(tmp_path / "n1.tar.gz") as archive:
        assert not any(info.pax_headers for info in archive)


def test_root_does_not_run_the_mpirun_that_another_node_built(place):
    prefix = place.roots / "openmpi"
    (prefix / "bin").mkdir(parents=True)
    said = place.state / "said"
    place.writes(said, "")
    said.chmod(0o666)
    mpirun = prefix / "bin/mpirun"
    mpirun.write_text(f'#!/bin/sh\n{{ id -u; id -G; pwd; echo "$SECRET"; }} >{said}\necho "mpirun (Open MPI) 4.1.4"\n')
    mpirun.chmod(0o755)
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("SECRET", "hunter2")
        assert read_mpi_of(Tree(), str(prefix)) == {"version": "4.1.4", "path": str(mpirun)}
    who, groups, folder, secret = said.read_text().splitlines()
    if os.geteuid():
        assert who == str(os.geteuid())
    else:
        assert (who, groups, folder, secret) == (str(place.owner.uid), str(place.owner.gid), "/", "")
