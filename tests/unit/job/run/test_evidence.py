"""PyTorch's flight recorder and NCCL's RAS report on ranks that hang, and cannot harm the reader."""

import os
import pickle
import socket
import threading
import time
from pathlib import Path

import pytest
from ansible.module_utils.trainyard.job.run import flight_recorder, stacks
from ansible.module_utils.trainyard_node.job.run import evidence
from hypothesis import given
from hypothesis import strategies as st
from test_stacks import record

FIXTURES = Path(__file__).resolve().parents[3] / "fixtures"
DUMPS = FIXTURES / "flight_recorder"
STATUS = (FIXTURES / "nccl_ras/status.txt").read_text()


def entry(number, state="completed", group=("0", "default_pg"), **changes):
    return {"process_group": group, "collective_seq_id": number, "p2p_seq_id": 0, "profiling_name": "nccl:all_reduce",
            "state": state, "retired": state == "completed", "is_p2p": False, **changes}  # fmt: skip


def dump(*entries):
    return pickle.dumps({"version": "2.10", "entries": list(entries)}, protocol=2)


@pytest.mark.parametrize(
    ("rank", "said"),
    [(0, "in gloo:all_reduce, number 5 of default_pg"),
     (2, "ended gloo:all_reduce, number 4 of default_pg, and began no other")],
)  # fmt: skip
def test_real_dumps_of_gloo(rank, said):
    assert flight_recorder.read((DUMPS / f"rank_{rank}").read_bytes()) == said


def test_the_first_that_is_open_counts_in_each_group():
    tensor = ("7", "tensor")
    received = entry(0, "scheduled", ("9", ""), is_p2p=True, p2p_seq_id=6, profiling_name="nccl:recv 1<-0")
    content = dump(entry(1), entry(2, "started"), entry(3, "scheduled"), entry(8, group=tensor), received)
    assert flight_recorder.read(content) == (
        "in nccl:all_reduce, number 2 of default_pg; in nccl:recv 1<-0, number 6 of 9; "
        "ended nccl:all_reduce, number 8 of tensor, and began no other"
    )


class Trap:
    """Calls something when it is unpickled."""

    def __reduce__(self):
        return os.mkdir, ("trapped",)


@pytest.mark.parametrize("protocol", range(6))
def test_a_dump_that_would_call_something_is_refused(protocol, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match="no dump"):
        flight_recorder.read(pickle.dumps({"entries": [Trap()]}, protocol=protocol))
    assert not Path("trapped").exists()


@pytest.mark.parametrize(
    "content",
    [b"", b"{}", b"\x80\x02}.", b"\x80\x02]q\x00h\x00a.", b"\x80\x05\x96" + b"\xff" * 7 + b"\x7f.",
     b"\x80\x02\x8a\xff", pickle.dumps([1], 2), pickle.dumps({"entries": [{"process_group": 1}]}, 2),
     pickle.dumps({"entries": [entry("x")]}, 2)],
)  # fmt: skip
def test_dumps_of_another_form_are_refused(content):
    with pytest.raises(ValueError, match="no dump"):
        flight_recorder.read(content)


@given(st.binary(max_size=400), st.integers(0, 300))
def test_broken_dumps_raise_nothing_else(noise, at):
    whole = dump(entry(1), entry(2, "started"))
    for content in (noise, whole[:at] + noise, whole[:at] + noise + whole[at + 1 :]):
        try:
            assert len(flight_recorder.read(content)) <= flight_recorder.MAX_TEXT
        except ValueError as error:
            assert "no dump" in str(error)


def test_a_dump_of_this_run_is_found_by_the_ranks_environment(tmp_path):
    (tmp_path / "dump_2").write_bytes(dump(entry(4)))
    env = {"TORCH_FR_DUMP_TEMP_FILE": f"{tmp_path}/dump_"}
    assert evidence.dumped(env, 2, time.time() - 60).startswith("ended nccl:all_reduce, number 4")
    assert evidence.dumped(env, 2, time.time() + 60) == ""
    assert evidence.dumped(env, 1, 0) == ""
    (tmp_path / "torch").mkdir()
    (tmp_path / "dump_2").rename(tmp_path / "torch/comm_lib_trace_rank_2")
    assert evidence.dumped({"XDG_CACHE_HOME": str(tmp_path)}, 2, 0).startswith("ended")


def test_a_file_that_is_no_dump_blocks_nothing(tmp_path):
    env = {"TORCH_NCCL_DEBUG_INFO_TEMP_FILE": f"{tmp_path}/dump_"}
    os.mkfifo(tmp_path / "dump_0")
    (tmp_path / "dump_1").symlink_to("/etc/passwd")
    (tmp_path / "dump_2").write_bytes(b"\0" * (flight_recorder.MAX_BYTES + 1))
    (tmp_path / "dump_3").write_bytes(b"\x1b[31m")
    pipe, link, large, text = (evidence.dumped(env, rank, 0) for rank in range(4))
    assert {each.partition(":")[0] for each in (pipe, link, text)} == {"a dump that cannot be read"}
    assert large == "a dump of more than 8 MiB, which is not read" and "\x1b" not in text


def test_a_dump_is_requested_through_the_pipe_of_the_rank(tmp_path):
    env = {"TORCH_NCCL_DEBUG_INFO_PIPE_FILE": f"{tmp_path}/ask_"}
    os.mkfifo(tmp_path / "ask_3.pipe")
    evidence.request_dump(env, 3)  # nobody reads
    with os.fdopen(os.open(tmp_path / "ask_3.pipe", os.O_RDONLY | os.O_NONBLOCK), "rb") as pipe:
        evidence.request_dump(env, 3)
        assert pipe.read() == b"1\n"
    (tmp_path / "ask_4.pipe").write_text("")
    evidence.request_dump(env, 4)
    assert (tmp_path / "ask_4.pipe").read_text() == ""


class Ras:
    """Speaks as NCCL's RAS does, once: src/ras/client_support.cc."""

    def __init__(self, answers, status):
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.heard, self._answers, self._status = [], answers, status
        self.env = {"NCCL_RAS_ADDR": f"127.0.0.1:{self.socket.getsockname()[1]}"}
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self):
        line, _ = self.socket.accept()
        with line, line.makefile("rb") as asked:
            for answer in self._answers:
                self.heard.append(asked.readline())
                line.sendall(answer)
            self.heard.append(asked.readline())
            try:
                for part in self._status:
                    line.sendall(part)
            except OSError:
                pass


WELL = (b"SERVER PROTOCOL 2\n", b"OK\n")


def test_other_servers_than_ras_are_left_alone():
    other = Ras((b"SSH-2.0-OpenSSH_9.2\r\n",), [])
    assert evidence.ras(other.env, 4.0) == ""
    assert evidence.ras({"NCCL_RAS_ADDR": "127.0.0.1:x"}, 4.0) == ""
    assert evidence.ras({"NCCL_RAS_ADDR": "127.0.0.1:99999"}, 4.0) == ""
    assert evidence.ras({**other.env, "NCCL_RAS_ENABLE": "0"}, 4.0) == ""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        assert evidence.ras({"NCCL_RAS_ADDR": f"127.0.0.1:{silent.getsockname()[1]}"}, 0.2) == ""


def test_the_status_of_ras_is_shown():
    ras = Ras(WELL, [STATUS.encode()])
    assert evidence.ras(ras.env, 4.0) == STATUS.rstrip("\n")
    assert ras.heard == [b"CLIENT PROTOCOL 2\n", b"TIMEOUT 3\n", b"VERBOSE STATUS\n"]


def test_ras_may_neither_fill_the_memory_nor_steer_a_terminal():
    ras = Ras(WELL, (b"\x1b]52;" + b"x" * 4000 + b"\n" for _ in range(1000)))
    said = evidence.ras(ras.env, 60.0)
    assert "\x1b" not in said
    assert len(said) < 2 * evidence.MAX_RAS


def test_recorders_are_shown_with_the_stacks():
    found = {"n1": [record(rank, recorder="ended number 4" if rank == 2 else "in number 5") for rank in range(4)]}
    assert stacks.lines(found, 4, {})[-2:] == [
        "PyTorch's flight recorder, ranks 0, 1, 3: in number 5",
        "PyTorch's flight recorder, rank 2: ended number 4",
    ]
    assert not any(group.odd for group in stacks.groups(found))
    assert "  PyTorch's flight recorder: ended number 4" in stacks.full_text(found["n1"][2], [], "")
