"""PyTorch's flight recorder and NCCL's RAS report on ranks that hang, and cannot harm the reader."""

import json
import os
import pickle
import socket
import threading
import time
from pathlib import Path

import pytest
from ansible.module_utils.trainyard.base.shapes import misfit
from ansible.module_utils.trainyard.job.run.logs import flight_recorder, nccl_ras, stacks
from ansible.module_utils.trainyard_node.job.run.evidence import evidence
from hypothesis import given
from hypothesis import strategies as st
from test_stacks import record

FIXTURES = Path(__file__).resolve().parents[3] / "fixtures"
DUMPS = FIXTURES / "flight_recorder"
STATUS = (FIXTURES / "nccl_ras/status.txt").read_text()


def entry(number, state="completed", group=("0", "default_pg"), **changes):
    return {"process_group": group, "collective_seq_id": number, "p2p_seq_id": 0, "profiling_name": "nccl:all_reduce",
            "state": state, "retired": state == "completed", "is_p2p": False, **changes}  # fmt: skip


def dump(*entries, **more):
    return pickle.dumps({"version": "2.10", "entries": list(entries), **more}, protocol=2)


def captured(name):
    return flight_recorder.read((DUMPS / name).read_bytes())


@pytest.mark.parametrize(
    ("rank", "said"),
    [(0, "in gloo:all_reduce of [1] Float, number 5 of default_pg"),
     (2, "ended gloo:all_reduce of [1] Float, number 4 of default_pg, and began no other")],
)  # fmt: skip
def test_real_dumps_of_gloo(rank, said):
    assert flight_recorder.text(captured(f"rank_{rank}")) == said


@pytest.mark.parametrize(
    ("dumps", "said"),
    [
        # Rank 1 gathers where the others reduce; rank 2 of another run does not come.
        (["mismatch_0", "mismatch_1", "mismatch_2"],
         "ranks 0, 2 called gloo:all_reduce of [4] Float as number 2 of default_pg; "
         "rank 1 called gloo:all_gather of [2] Float"),
        (["rank_0", "rank_0", "rank_2"],
         "ranks 0, 1 called gloo:all_reduce of [1] Float as number 5 of default_pg; "
         "rank 2 did not: number 4 was the last call"),
    ],
)  # fmt: skip
def test_the_rank_that_did_not_call_what_the_others_did_is_named(dumps, said):
    found = {rank: captured(name) for rank, name in enumerate(dumps)}
    assert flight_recorder.differences(found) == [said]
    (line,) = (each for each in stacks.lines({"n1": [record(rank, calls=found[rank]) for rank in found]}, 3, {})
               if "recorder" in each)  # fmt: skip
    assert line == f"PyTorch's flight recorder: {said}"


def test_no_rank_is_named_without_a_majority_or_where_calls_differ_by_nature():
    def differs(*of):
        return flight_recorder.differences(dict(enumerate(map(flight_recorder.read, of))))

    first, late, other = entry(5, "started"), entry(4), entry(5, "started", profiling_name="nccl:broadcast")
    assert differs(dump(first), dump(first)) == differs(dump(first), dump(other)) == []
    # Those of most ranks have ended: the others may just be later.
    assert differs(dump(late), dump(late), dump(first)) == []
    received = entry(0, "started", is_p2p=True, profiling_name="nccl:recv 1<-0")
    assert differs(dump(received), dump(received), dump(late)) == []
    # A group of other ranks may have the same name.
    mesh = [{**entry(number, "started", ("3", "mesh_dp"))} for number in (5, 7)]
    members = [{"3": {"ranks": ranks}} for ranks in ("[0, 2]", "[1, 3]")]
    assert differs(*(dump(mesh[rank % 2], pg_config=members[rank % 2]) for rank in range(4))) == []
    # Two groups of all ranks without a description: each rank is in another one of them.
    both = [entry(number, "started", (str(number), "undefined")) for number in (1, 2)]
    known = {str(number): {"ranks": "[0, 1, 2]"} for number in (1, 2)}
    assert differs(*(dump(both[rank == 0], pg_config=known) for rank in range(3))) == []
    # The same call with another size, and one that is ahead.
    sized = [entry(5, "started", input_sizes=[[size]], input_dtypes=["Float"]) for size in (8, 8, 8, 9)]
    assert differs(*map(dump, sized), dump(entry(6, "started"))) == [
        "ranks 0 to 2 called nccl:all_reduce of [8] Float as number 5 of default_pg; "
        "rank 3 called nccl:all_reduce of [9] Float; rank 4 had called number 6, nccl:all_reduce"
    ]


def test_the_first_that_is_open_counts_in_each_group():
    tensor = ("7", "tensor")
    received = entry(0, "scheduled", ("9", ""), is_p2p=True, p2p_seq_id=6, profiling_name="nccl:recv 1<-0")
    content = dump(entry(1), entry(2, "started"), entry(3, "scheduled"), entry(8, group=tensor), received)
    assert flight_recorder.text(flight_recorder.read(content)) == (
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
            assert misfit(flight_recorder.read(content), flight_recorder.CALLS) == ""
        except ValueError as error:
            assert "no dump" in str(error)


def test_a_dump_of_this_run_is_found_by_the_ranks_environment(tmp_path):
    (tmp_path / "dump_2").write_bytes(dump(entry(4)))
    env = {"TORCH_FR_DUMP_TEMP_FILE": f"{tmp_path}/dump_"}
    (call,), why = evidence.dumped(env, 2, time.time() - 60)
    assert (call["call"], call["number"], call["open"], why) == ("nccl:all_reduce", 4, False, "")
    assert evidence.dumped(env, 2, time.time() + 60) == evidence.dumped(env, 1, 0) == ([], "")
    (tmp_path / "torch").mkdir()
    (tmp_path / "dump_2").rename(tmp_path / "torch/comm_lib_trace_rank_2")
    assert evidence.dumped({"XDG_CACHE_HOME": str(tmp_path)}, 2, 0)[0] == [call]


def test_a_file_that_is_no_dump_blocks_nothing(tmp_path):
    env = {"TORCH_NCCL_DEBUG_INFO_TEMP_FILE": f"{tmp_path}/dump_"}
    os.mkfifo(tmp_path / "dump_0")
    (tmp_path / "dump_1").symlink_to("/etc/passwd")
    (tmp_path / "dump_2").write_bytes(b"\0" * (flight_recorder.MAX_BYTES + 1))
    (tmp_path / "dump_3").write_bytes(b"\x1b[31m")
    pipe, link, large, text = (evidence.dumped(env, rank, 0)[1] for rank in range(4))
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


def test_two_answers_of_ras_name_a_rank_that_is_behind():
    """The answer of a real NCCL 2.28.9, with its one rank as four."""
    answer = json.loads((FIXTURES / "nccl_ras/status.json").read_text())
    assert nccl_ras.lines(json.dumps(answer), json.dumps(answer), 5.0) == []
    (communicator,) = answer["communicators"]
    (rank,) = communicator["ranks"]

    def told(*counts, missing=()):
        ranks = [{**rank, "rank": number, "collective_counts": {"AllReduce": count}}
                 for number, count in enumerate(counts)]  # fmt: skip
        return json.dumps({"communicators": [{**communicator, "size": 4, "ranks": ranks, "missing_ranks": [*missing]}]})

    behind = (
        "rank 2 of a communicator of 4 (process 4361 on 192.0.2.2) has called AllReduce 11 times, 3 others 12 times"
    )
    assert nccl_ras.lines(told(12, 12, 11, 12), told(12, 12, 11, 12), 5.0) == [f"{behind}, the same 5 s later"]
    # It goes on; there is no majority; another communicator; no answer.
    assert nccl_ras.lines(told(12, 12, 10, 12), told(12, 12, 11, 12), 5.0) == []
    assert nccl_ras.lines(told(12, 11), told(12, 11), 5.0) == nccl_ras.lines(told(1), json.dumps(answer), 5.0) == []
    assert nccl_ras.lines("", told(12, 12, 11), 5.0) == nccl_ras.lines("{", "[1]", 5.0) == []
    gone = {"rank": 3, "host": "192.0.2.3", "pid": 7, "status": {"unresponsive": True, "considered_dead": True}}
    (line,) = nccl_ras.lines(told(12, 12, missing=[gone]), told(12, 12, missing=[gone]), 5.0)
    assert line == "rank 3 of a communicator of 4 (process 7 on 192.0.2.3) is considered dead"
    found = {"n1": [record(0, ras=[line]), record(1)], "n2": [record(2, ras=[line])]}
    assert stacks.lines(found, 3, {}).count(f"NCCL's RAS: {line}") == 1


@given(st.recursive(st.none() | st.integers() | st.text(max_size=5), lambda inner: st.lists(inner) | st.dictionaries(
    st.sampled_from(["communicators", "hash", "size", "ranks", "rank", "collective_counts", "missing_ranks", "status"]),
    inner)))  # fmt: skip
def test_answers_of_another_form_raise_nothing(answer):
    for text in (json.dumps(answer), json.dumps({"communicators": [answer]})):
        assert all(len(line) <= flight_recorder.MAX_TEXT for line in nccl_ras.lines(text, text, 1.0))


def test_ras_is_asked_for_json():
    ras = Ras((*WELL, b"OK\n"), [b'{"communicators": []}'])
    assert evidence.ras(ras.env, 4.0, as_json=True) == '{"communicators": []}'
    assert ras.heard[-2:] == [b"SET FORMAT json\n", b"VERBOSE STATUS\n"]
    old = Ras((*WELL, b"ERROR: Unknown command SET\n"), [])
    assert evidence.ras(old.env, 4.0, as_json=True) == ""


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
