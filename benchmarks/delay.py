#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Send what goes to some addresses through an uplink: `delay.py SECONDS BYTES_A_SECOND UPLINK ADDRESS...`.

Until it is ended, each packet is held back for so long, and nodes that name the same file as their uplink share its
bandwidth. The kernel of the lab has no netem: a TUN device takes the packets, and a raw socket sends each on.
Started as root by `nsenter --net` in the network of a node, whose processes see only that some nodes are far.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import socket
import struct
import subprocess
import sys
import time
from collections import deque
from pathlib import Path

DEVICE, MARK = "far0", 7  # packets that bear the mark have waited
_TUNSETIFF, _IFF_TUN, _IFF_NO_PI = 0x400454CA, 0x0001, 0x1000
_IP_HDRINCL, _QUEUE = 3, 4 << 20


def device() -> int:
    """Make the device, which goes when it is closed."""
    tun = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(tun, _TUNSETIFF, struct.pack("16sH", DEVICE.encode(), _IFF_TUN | _IFF_NO_PI))
    return tun


def route(addresses: list[str]) -> None:
    """Lead what goes to the addresses through the device, except what has waited."""
    for file in Path("/proc/sys/net/ipv4/conf").glob("*/rp_filter"):
        file.write_text("0")
    lines = [f"link set {DEVICE} up txqueuelen 10000"]
    for address in addresses:
        found = subprocess.run(["ip", "-o", "route", "get", address], check=True, capture_output=True, text=True)
        words = found.stdout.split()
        out, own = words[words.index("dev") + 1], words[words.index("src") + 1]
        lines += [f"route replace {address} dev {out} table {MARK}", f"route replace {address} dev {DEVICE} src {own}"]
    subprocess.run(["ip", "-batch", "-"], input="\n".join(lines), check=True, text=True)
    subprocess.run(["ip", "rule", "del", "fwmark", str(MARK)], check=False, stderr=subprocess.DEVNULL)
    subprocess.run(["ip", "rule", "add", "fwmark", str(MARK), "table", str(MARK)], check=True)


def hold_back(tun: int, seconds: float, rate: float, uplink: str) -> None:
    """Send each packet on after so many seconds, and after those that share the uplink."""
    out = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW)
    out.setsockopt(socket.IPPROTO_IP, _IP_HDRINCL, 1)
    out.setsockopt(socket.SOL_SOCKET, socket.SO_MARK, MARK)
    out.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _QUEUE)
    waiting: deque[tuple[float, bytes]] = deque()
    shared = os.open(uplink, os.O_RDWR | os.O_CREAT)
    while True:
        limit = max(0.0, waiting[0][0] - time.monotonic()) if waiting else None
        if select.select([tun], [], [], limit)[0]:
            with contextlib.suppress(BlockingIOError):
                while True:
                    packet = os.read(tun, 65536)
                    waiting.append((time.monotonic() + seconds, packet))
        while waiting and waiting[0][0] <= time.monotonic():
            packet = waiting.popleft()[1]
            fcntl.flock(shared, fcntl.LOCK_EX)
            time.sleep(len(packet) / rate)
            fcntl.flock(shared, fcntl.LOCK_UN)
            with contextlib.suppress(OSError):
                out.sendto(packet, (socket.inet_ntoa(packet[16:20]), 0))


if __name__ == "__main__":
    tunnel = device()
    route(sys.argv[4:])
    print("ready", flush=True)
    hold_back(tunnel, float(sys.argv[1]), float(sys.argv[2]), sys.argv[3])
