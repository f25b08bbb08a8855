"""What holds a TCP port: a process, its job, or only its user; and the failure of a rank whose port is taken."""

import os
import socket

import pytest
from ansible.module_utils.trainyard_node.job.run.evidence import port_holder
from ansible.module_utils.trainyard_node.machine.users import user_name

HEADING = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
IN_USE = (
    "torch.distributed.DistNetworkError: The server socket has failed to listen on any local network address. "
    "port: 29996, useIpv6: false, code: -98, name: EADDRINUSE, message: address already in use\n"
)


@pytest.fixture
def proc(tmp_path):
    """Port 29996 (0x752C) of process 77, which listens, and of a connection of process 78."""
    (tmp_path / "net").mkdir()
    rest = "00000000:00000000 00:00000000 00000000     0        0"
    (tmp_path / "net/tcp").write_text(
        f"{HEADING}   0: 0100007F:752C 0100007F:9C40 01 {rest} 4343 1\n"
        f"   1: 0100007F:752C 00000000:0000 0A {rest} 4242 1\n"
        f"   2: 0100007F:752D 0100007F:9C41 06 {rest} 0 1\n"
    )
    for pid, inode in ((77, 4242), (78, 4343)):
        (tmp_path / f"{pid}/fd").mkdir(parents=True)
        (tmp_path / f"{pid}/fd/3").symlink_to(f"socket:[{inode}]")
        (tmp_path / f"{pid}/cmdline").write_bytes(b"python\0train.py\0")
        (tmp_path / f"{pid}/environ").write_bytes(b"TRAINYARD_JOB_ID=digits-1\0" if pid == 77 else b"")
    return tmp_path


def test_a_process_that_listens_comes_before_connections(proc):
    assert port_holder.named(0x752C, proc) == " by python (pid 77) of job digits-1"
    (proc / "77/environ").write_bytes(b"TRAINYARD_JOB_ID=two\nlines\0")
    assert port_holder.named(0x752C, proc) == " by python (pid 77)"
    table = proc / "net/tcp"
    table.write_text("".join(line for line in table.read_text().splitlines(True) if " 0A " not in line))
    assert port_holder.named(0x752C, proc) == " by python (pid 78)"


def test_of_a_hidden_process_the_user_is_known(proc):
    (proc / "77/fd/3").unlink()
    assert port_holder.named(0x752C, proc) == " by a process of user root"


def test_nothing_holds_a_port_in_time_wait_or_without_a_socket(proc):
    assert port_holder.named(0x752D, proc) == port_holder.named(0x752E, proc) == ""


def test_a_rank_whose_port_is_taken_names_the_holder(proc):
    assert port_holder.in_use(IN_USE, 0x752C, proc) == "port 29996 is in use by python (pid 77) of job digits-1"
    assert port_holder.in_use(IN_USE.replace("29996", "129996"), 0x752C, proc) == ""
    assert port_holder.in_use("step 29996 loss 1.0\n", 0x752C, proc) == ""
    (proc / "net/tcp").write_text(HEADING)
    assert port_holder.in_use(IN_USE, 0x752C, proc) == "port 29996 was in use, and is free again"


def test_a_port_of_this_machine_is_found():
    with socket.create_server(("127.0.0.1", 0)) as server:
        found = port_holder.named(server.getsockname()[1])
    assert f"(pid {os.getpid()})" in found
    assert user_name(os.getuid())
