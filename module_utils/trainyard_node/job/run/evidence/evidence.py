# SPDX-License-Identifier: Apache-2.0
"""Collect evidence on ranks that hang: the dump of PyTorch's flight recorder, and the report of NCCL's RAS.

Both are read with the rights of the job's user, with limits for time and size. Sources: PyTorch's ProcessGroupNCCL.cpp
(DumpPipe) and FlightRecorder.cpp; NCCL's src/ras/client.cc and client_support.cc (2.24 and newer).
"""

from __future__ import annotations

import contextlib
import os
import socket
import stat
import time
from collections.abc import Mapping
from typing import Any

from .....trainyard.base.visible import visible
from .....trainyard.job.run.logs import flight_recorder
from ....machine.json_files import open_regular

Environment = Mapping[str, str]

# Prefixes of a rank's dump, and of the pipe by which one is asked for; the rank's number follows.
_DUMP = ("TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE")
_PIPE = ("TORCH_FR_DEBUG_INFO_PIPE_FILE", "TORCH_NCCL_DEBUG_INFO_PIPE_FILE")
_RAS_ADDRESS = "localhost:28028"
# Upper bounds for RAS's answer as text and as JSON, in bytes, and its time limit, in seconds.
MAX_RAS, MAX_JSON, RAS_S = 64 << 10, 4 << 20, 4.0


def _first(env: Environment, names: tuple[str, ...]) -> str:
    return next((env[name] for name in names if env.get(name)), "")


def request_dump(env: Environment, rank: int) -> None:
    """Request a dump of a rank's flight recorder, if the job names a pipe for that."""
    prefix = _first(env, _PIPE)
    if prefix:
        with contextlib.suppress(OSError):
            pipe = os.open(f"{prefix}{rank}.pipe", os.O_WRONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
            with os.fdopen(pipe, "wb", buffering=0) as there:
                if stat.S_ISFIFO(os.fstat(pipe).st_mode):
                    there.write(b"1\n")


def dumped(env: Environment, rank: int, began: float) -> tuple[list[dict[str, Any]], str]:
    """Return a rank's calls by its dump since `began` (s since the epoch), and why a dump has none, or ""."""
    cache = env.get("XDG_CACHE_HOME") or f"{env.get('HOME') or '/tmp'}/.cache"  # noqa: S108 - as PyTorch has it
    path = f"{_first(env, _DUMP) or f'{cache}/torch/comm_lib_trace_rank_'}{rank}"
    try:
        with open_regular(path) as there:
            if os.fstat(there.fileno()).st_mtime < began:
                return [], ""
            content = there.read(flight_recorder.MAX_BYTES + 1)
        if len(content) > flight_recorder.MAX_BYTES:
            return [], f"a dump of more than {flight_recorder.MAX_BYTES >> 20} MiB, which is not read"
        return flight_recorder.read(content), ""
    except FileNotFoundError:
        return [], ""
    except (OSError, ValueError) as error:
        return [], visible(f"a dump that cannot be read: {error}")[: flight_recorder.MAX_TEXT]


def ras(env: Environment, limit_s: float, as_json: bool = False) -> str:
    """Return the report of NCCL's RAS on the job of these ranks, "" if none listens, or cannot answer so.

    It is text for people, or JSON (nccl_ras.py), which NCCL has since 2.28.7.
    """
    host, _, port = (env.get("NCCL_RAS_ADDR") or _RAS_ADDRESS).rpartition(":")
    if env.get("NCCL_RAS_ENABLE") == "0" or not (port.isdecimal() and len(port) <= 5) or limit_s <= 0:
        return ""
    until, report, most = time.monotonic() + limit_s, b"", MAX_JSON if as_json else MAX_RAS

    def receive(line: socket.socket, most: int) -> bytes:
        line.settimeout(max(0.01, until - time.monotonic()))
        return line.recv(most)

    try:
        line = socket.create_connection((host.strip("[]") or "localhost", int(port)), limit_s)
    except (OSError, OverflowError):
        return ""
    with line, contextlib.suppress(OSError):
        wait_s = b"TIMEOUT %d\n" % max(1, int(limit_s) - 1)
        form = [(b"SET FORMAT json\n", b"OK")] if as_json else []
        for ask, answer in ((b"CLIENT PROTOCOL 2\n", b"SERVER PROTOCOL "), (wait_s, b"OK"), *form):
            line.sendall(ask)
            if not receive(line, 1024).upper().startswith(answer):
                return ""
        line.sendall(b"VERBOSE STATUS\n")
        while len(report) < most and (part := receive(line, 1 << 16)):
            report += part
    text = report[:most].decode("utf-8", "replace")
    return text if as_json else "\n".join(map(visible, text.splitlines()))
