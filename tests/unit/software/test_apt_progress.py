"""How far apt-get is, by what apt 2.6 and dpkg 1.21 of Debian 12 have written."""

import os
import time

import pytest
from ansible.module_utils.trainyard.base.shapes import misfit
from ansible.module_utils.trainyard.software import pip_progress
from ansible.module_utils.trainyard_node.machine.tree import Outcome
from ansible.module_utils.trainyard_node.software import apt_progress, program_progress

ARGV = ["apt-get", "-y", "-o", "DPkg::Pre-Invoke::=/tmp/x", "install", "fish", "zsh=5.9-4+b15"]
ARGV += ["-o", "APT::Install-Recommends=no", "./local.deb"]
HISTORY = """
Start-Date: 2026-11-28  11:59:27
Commandline: apt-get install -y -qq --no-install-recommends chromium
Install: chromium:amd64 (156.0.8078.108-1~deb12u1), libpulse0:amd64 (16.1+dfsg1-2+b1, automatic)
End-Date: 2026-11-28  11:59:45

Start-Date: 2026-11-28  20:32:49
Commandline: apt-get install -y -q fish zsh
Install: zsh-common:amd64 (5.9-4, automatic), zsh:amd64 (5.9-4+b15), fish:amd64 (3.6.0-3.1+deb12u1)
Upgrade: libpcre2-8-0:amd64 (10.42-1, 10.42-1+deb12u2)
"""
LOG = """\
2026-11-28 11:59:45 status installed zsh:amd64 5.9-4+b15
2026-11-28 20:32:49 startup archives unpack
2026-11-28 20:32:50 upgrade libpcre2-8-0:amd64 10.42-1 10.42-1+deb12u2
2026-11-28 20:32:50 status unpacked libpcre2-8-0:amd64 10.42-1
2026-11-28 20:32:50 status half-installed libpcre2-8-0:amd64 10.42-1
2026-11-28 20:32:50 status unpacked libpcre2-8-0:amd64 10.42-1+deb12u2
2026-11-28 20:32:50 startup packages configure
2026-11-28 20:32:50 configure libpcre2-8-0:amd64 10.42-1+deb12u2 <none>
2026-11-28 20:32:50 status installed libpcre2-8-0:amd64 10.42-1+deb12u2
2026-11-28 20:32:51 startup archives unpack
2026-11-28 20:32:52 install fish:amd64 <none> 3.6.0-3.1+deb12u1
2026-11-28 20:32:52 status half-installed fish:amd64 3.6.0-3.1+deb12u1
2026-11-28 20:32:53 status unpacked fish:amd64 3.6.0-3.1+deb12u1
2026-11-28 20:32:54 install zsh-common:all <none> 5.9-4
2026-11-28 20:32:54 status half-installed zsh-common:all 5.9-4
2026-11-28 20:32:56 status unpacked zsh-common:all 5.9-4
2026-11-28 20:32:56 install zsh:amd64 <none> 5.9-4+b15
2026-11-28 20:32:56 status half-installed zsh:amd64 5.9-4+b15
2026-11-28 20:32:56 status unpacked zsh:amd64 5.9-4+b15
2026-11-28 20:32:57 startup packages configure
2026-11-28 20:32:57 configure zsh-common:all 5.9-4 <none>
2026-11-28 20:32:57 status installed zsh-common:all 5.9-4
2026-11-28 20:32:57 configure zsh:amd64 5.9-4+b15 <none>
2026-11-28 20:32:57 status installed zsh:amd64 5.9-4+b15
2026-11-28 20:32:57 configure fish:amd64 3.6.0-3.1+deb12u1 <none>
2026-11-28 20:32:57 status installed fish:amd64 3.6.0-3.1+deb12u1
2026-11-28 20:32:57 trigproc man-db:amd64 2.11.2-2 <none>
2026-11-28 20:32:57 status half-configured man-db:amd64 2.11.2-2
""".splitlines(keepends=True)
URIS = """\
Need to get 11.8 MB of archives.
After this operation, 43.9 MB of additional disk space will be used.
'http://mirror.example/pool/main/f/fish/fish_3.6.0-3.1%2bdeb12u1_amd64.deb' fish_3.6.0-3.1+deb12u1_amd64.deb 6291456 \
MD5Sum:0123
'http://mirror.example/pool/main/z/zsh/zsh_5.9-4%2bb15_amd64.deb' zsh_5.9-4+b15_amd64.deb 1048576 SHA256:4567
'file:/srv/bundle/debs/a_1_all.deb' a_1_all.deb 99999999 SHA256:89ab
"""


@pytest.fixture
def machine(monkeypatch, tmp_path):
    """Return a folder with apt's files, where an apt-get runs since its begin in the logs, 20 s before now."""
    monkeypatch.setattr(apt_progress, "HISTORY", tmp_path / "history.log")
    monkeypatch.setattr(apt_progress, "DPKG_LOG", tmp_path / "dpkg.log")
    for name in ("ARCHIVES", "LISTS"):
        (tmp_path / name / "partial").mkdir(parents=True)
        monkeypatch.setattr(apt_progress, name, tmp_path / name)
    began = apt_progress._seconds("2026-11-28 20:32:40")
    monkeypatch.setattr(apt_progress, "_running", lambda: (ARGV, began))
    monkeypatch.setattr(time, "time", lambda: began + 20)
    return tmp_path


def text(record):
    assert not misfit(record, pip_progress.INSTALLING)
    return pip_progress.text(record)


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (1, "unpacking 0 of 4 packages"),
        (11, "unpacking fish: 1 of 4 packages, 33 s left"),
        (16, "unpacking zsh-common: 3 of 4 packages, 4 s left"),
        (22, "setting up zsh-common: 2 of 4 packages, 3 s left"),
        (28, "setting up man-db: 4 of 4 packages, 1/s"),
    ],
)
def test_packages_are_counted_by_the_logs(machine, lines, expected):
    (machine / "history.log").write_text(HISTORY)
    (machine / "dpkg.log").write_text("".join(LOG[:lines]))
    assert text(program_progress.of_task("packages", {}, None)) == expected


def test_a_download_is_compared_with_what_apt_get_lists(machine, monkeypatch):
    monkeypatch.undo()
    calls = []
    monkeypatch.setattr(apt_progress, "ARCHIVES", machine / "ARCHIVES")
    monkeypatch.setattr(apt_progress, "HISTORY", machine / "history.log")
    monkeypatch.setattr(apt_progress, "_running", lambda: (ARGV, time.time() - 5))
    monkeypatch.setattr(apt_progress.commands, "run", lambda argv, _: calls.append(argv) or Outcome(0, URIS))
    (machine / "history.log").write_text(HISTORY + "End-Date: 2026-11-28  20:33:18\n")
    assert program_progress.of_task("packages", {}, None) is None and calls == []
    (machine / "ARCHIVES/zsh-common_5.9-4_all.deb").write_bytes(bytes(1 << 20))
    (machine / "ARCHIVES/partial/fish_3.6.0-3.1+deb12u1_amd64.deb").write_bytes(bytes(1 << 20))
    record = program_progress.of_task("packages", {}, None)
    assert text({**record, "seconds": 2.0}) == "packages: 2 MiB of 8 MiB, 1 MiB/s, 6 s left"
    options = ["--print-uris", "--yes", "--no-install-recommends"]
    assert calls == [["apt-get", *options, "install", "--", "fish", "zsh=5.9-4+b15"]]
    # It is called once.
    assert program_progress.of_task("packages", {}, record)["total"] == 8 << 20 and len(calls) == 1


def test_only_an_own_apt_get_that_installs_is_read(machine, monkeypatch):
    monkeypatch.undo()
    monkeypatch.setattr(apt_progress, "PROC", machine)
    then = time.time() - 7
    ticks = int((time.clock_gettime(time.CLOCK_BOOTTIME) - 7) * os.sysconf("SC_CLK_TCK"))

    def process(number, argv, namespace="pid:[1]"):
        folder = machine / number
        (folder / "ns").mkdir(parents=True)
        (folder / "ns/pid").symlink_to(namespace)
        (folder / "cmdline").write_text("\0".join(argv) + "\0")
        (folder / "stat").write_text(f"77 (apt-get) S {'0 ' * 18}{ticks} 0\n")

    process("self", ["python3"])
    process("1", ["apt-get", "update"])
    process("2", ["apt-get", "--simulate", "install", "a"])
    process("3", ["vim", "install"])
    # In a container.
    process("4", ARGV, "pid:[2]")
    assert apt_progress._running() == ([], 0.0)
    process("5", ["/usr/bin/apt-get", *ARGV[1:]])
    argv, began = apt_progress._running()
    assert argv[1:] == ARGV[1:] and abs(began - then) < 1
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    assert apt_progress._running() == ([], 0.0)
