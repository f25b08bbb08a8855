"""Installed packages in words: outputs of apt, results of dnf and get_url, and our own modules."""

from pathlib import Path

import pytest
from ansible.module_utils.trainyard.software import installed

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures"
APT = (FIXTURES / "apt" / "install-openmpi.txt").read_text()


@pytest.mark.parametrize(
    ("size", "expected"),
    [(1, "1 KiB"), (57 << 10, "57 KiB"), (812 << 20, "812 MiB"), (1288490188, "1.2 GiB"), (12 << 30, "12 GiB")],
)
def test_sizes(size, expected):
    assert installed.size_text(size) == expected


def test_how_far_a_transfer_is():
    assert installed.share_text(212 << 20, 812 << 20, 20) == "212 MiB of 812 MiB, 11 MiB/s, 57 s left"
    assert installed.share_text(5 << 20, 0, 5) == "5 MiB, 1 MiB/s"
    assert installed.share_text(0, 5 << 20, 9) == "0 KiB of 5 MiB"


@pytest.mark.parametrize(("seconds", "expected"), [(0.4, "less than 1 s"), (48.2, "48 s"), (125, "2 min 5 s")])
def test_seconds(seconds, expected):
    assert installed.seconds_text(seconds) == expected


def test_what_apt_has_installed():
    found = installed.by_apt(APT, ["no-such", "openmpi-bin=4.1.4-3+b1"])
    # 18 new packages and 2 upgrades.
    assert len(found["packages"]) == 20 and found["packages"][0] == "openmpi-bin 4.1.4-3+b1"
    assert "libevent-2.1-7 2.1.12-stable-8+deb12u1" in found["packages"] and found["bytes"] == 21_900_000
    assert installed.by_apt("0 upgraded, 0 newly installed") == {"packages": []}
    freed = "After this operation, 12.3 MB disk space will be freed.\nSetting up nano (7.2-1) ...\n"
    assert installed.by_apt(freed) == {"packages": ["nano 7.2-1"]}
    # apt 3 has another summary.
    assert installed.by_apt("Summary:\n  Space needed: 1,070 kB / 75 GB available\n")["bytes"] == 1_070_000


def by_apt(*names):
    return {"changed": True, "stdout": APT, "invocation": {"module_args": {"name": list(names)}}}


GOT = {"msg": "OK (7 bytes)", "size": 45 << 20, "url": "https://u:secret@mirror.example.org/a/cuda.run?token=secret"}
TORCH = {"packages": ["torch 2.9.0", "numpy 2.4.6", "sympy 1.14"], "bytes": 851443712}


@pytest.mark.parametrize(
    ("action", "result", "expected"),
    [
        ("python_environment", {"installed": TORCH}, "installed torch 2.9.0 and 2 others (812 MiB)"),
        ("python_environment", {"installed": {"packages": ["a 1", "b 2"], "bytes": 0}}, "installed a 1 and 1 other"),
        ("python_environment", {"changed": True}, ""),
        # Work on the controller, which is not part of the cluster.
        ("training_data", {"installed": {"packages": ["the data set digits"]}, "changed": False}, ""),
        ("nvidia_repository", {"installed": {"packages": []}}, ""),
        ("command", {"installed": "a text of somebody else's"}, ""),
        ("apt", by_apt("openmpi-bin"), "installed openmpi-bin 4.1.4-3+b1 and 19 others (21 MiB)"),
        ("apt", {**by_apt("openmpi-bin"), "changed": False}, ""),
        ("package", by_apt(), "installed libmunge2 0.5.15-2+deb12u1 and 19 others (21 MiB)"),
        ("dnf", {"changed": True, "results": ["Installed: gcc-11.5-2.el9.x86_64"]}, "installed gcc-11.5-2.el9.x86_64"),
        ("apt", {"changed": True, "stdout": "", "invocation": {"module_args": {"name": "git"}}}, ""),
        ("download", GOT, "downloaded cuda.run (45 MiB)"),
        ("download", {**GOT, "msg": "file already exists"}, ""),
    ],
)
def test_results_of_tasks(action, result, expected):
    assert installed.done_text(action, result) == expected


def test_hosts_with_the_same_result_share_a_line():
    done = [("n1", "installed a 1", 48.3), ("n2", "installed a 1", 51), ("n3", "installed b 2", 5), ("n4", "done", 130)]
    assert installed.lines(done) == [
        "n1, n2: installed a 1 in 48 s to 51 s",
        "n3: installed b 2 in 5 s",
        "n4: done in 2 min 10 s",
    ]
    assert installed.lines([]) == []
