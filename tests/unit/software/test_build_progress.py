"""How far a build from source is, by what automake, the Makefile of nccl-tests and their compilers leave."""

import os
import time

import pytest
from ansible.module_utils.trainyard.base.shapes import misfit
from ansible.module_utils.trainyard.software import pip_progress
from ansible.module_utils.trainyard_node.software import program_progress

CONFIGURE = """\
checking for a BSD-compatible install... /usr/bin/install -c
checking whether build environment is sane... yes
configure: creating ./config.status
config.status: executing depfiles commands
"""
MAKE = """\
make[2]: Entering directory '/opt/openmpi/.openmpi-building/source/opal/util'
  CC       arch.lo
  CC       util/argv.lo
  CCLD     libopalutilcore.la
"""


@pytest.fixture
def building(tmp_path):
    for name in ("source", "stage/bin"):
        (tmp_path / name).mkdir(parents=True)
    return tmp_path


def record(building):
    found = program_progress.of_task("build", {"path": str(building / "source")}, None)
    assert found is None or not misfit(found, pip_progress.INSTALLING)
    return found


def test_open_mpi_is_configured_compiled_and_installed(building):
    assert record(building) is None
    log = building / "build.log"
    log.write_text(CONFIGURE)
    assert pip_progress.text({**record(building), "seconds": 0.0}) == "configuring 2 checks"
    folder = building / "source/opal/util/.deps"
    folder.mkdir(parents=True)
    for name in ("arch.Plo", "argv.Plo", "bit_ops.Plo", "main.Po"):
        (folder / name).write_text("# dummy\n")
    assert pip_progress.text({**record(building), "seconds": 0.0}) == "configuring 2 checks"
    log.write_text(CONFIGURE + MAKE)
    # Compiled 4 s ago; libtool leaves two objects of it.
    (folder / "arch.Plo").write_text("arch.lo: arch.c /usr/include/stdc-predef.h\n")
    os.utime(folder / "arch.Plo", (time.time() - 4, time.time() - 4))
    for name in (".libs/arch.o", "arch.o"):
        (folder.parent / name).parent.mkdir(exist_ok=True)
        (folder.parent / name).touch()
    found = record(building)
    assert 3.5 < found["seconds"] < 6
    assert pip_progress.text({**found, "seconds": 4.0}) == "compiling libopalutilcore.la: 1 of 4 files, 12 s left"
    (building / "stage/bin/mpirun").touch()
    assert pip_progress.text({**record(building), "seconds": 0.0}) == "installing 1 file"


def test_a_module_of_the_kernel_has_the_log_of_dkms(building):
    (building / "source/nvidia").mkdir()
    (building / "source/nvidia/nv.o").touch()
    (building / "source/make.log").write_text(
        "DKMS make.log for nvidia-580.95.05 for kernel 6.1.0-18-amd64 (x86_64)\n"
        "  CC [M]  /var/lib/dkms/nvidia/580.95.05/build/nvidia/nv.o\n"
    )
    assert pip_progress.text({**record(building), "seconds": 9.0}) == "compiling nv.o: 1 file"
