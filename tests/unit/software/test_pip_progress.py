"""How far an installation by pip is, from lines that pip 20 to 26 print."""

import sys
import zipfile

import pytest
from ansible.module_utils.trainyard.software import pip_progress
from ansible.module_utils.trainyard.software.pip_progress import COMPILE, DOWNLOAD, UNPACK, PipOutput
from ansible.module_utils.trainyard_node.machine import commands
from ansible.module_utils.trainyard_node.software import environment_progress

TORCH = "torch-2.9.0-cp311-cp311-linux_x86_64.whl"


def record(**given):
    return {"phase": DOWNLOAD, "file": TORCH, "number": 3, "done": 0, "total": 0, "seconds": 0.0, **given}


@pytest.mark.parametrize(
    ("line", "size"),
    [
        (f"  Downloading {TORCH} (530.7 MB)", 530_700_000),
        (f"  Downloading https://index/whl/cpu/{TORCH}#sha256=ab (1.2 GB)", 1_200_000_000),
        (f"  Using cached {TORCH} (184 kB)", 184_000),
        (f"Downloading {TORCH}", 0),
    ],
)
def test_a_file_is_downloaded(line, size):
    pip = PipOutput()
    assert pip.read(line) and (pip.phase, pip.file, pip.size, pip.number) == (DOWNLOAD, TORCH, size, 1)


def test_the_steps_of_pip():
    pip = PipOutput()
    lines = [
        "Collecting torch==2.9.0 (from -r requirements.txt (line 1))",
        f"  Downloading {TORCH}.metadata (29 kB)",
        "Processing /wheels/numpy-2.4.6-cp311-cp311-linux_x86_64.whl",
        f"  Downloading {TORCH} (530.7 MB)",
        "Installing collected packages: numpy, torch",
    ]
    assert [pip.read(line) for line in lines] == [False, False, False, True, True]
    assert (pip.phase, pip.number) == (UNPACK, 2)
    assert pip.local == ["/wheels/numpy-2.4.6-cp311-cp311-linux_x86_64.whl"]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (
            {"done": 212 << 20, "total": 812 << 20, "seconds": 20.0},
            "download 3, torch-2.9.0: 212 MiB of 812 MiB, 11 MiB/s, 57 s left",
        ),
        ({"done": 5 << 20, "seconds": 5.0}, "download 3, torch-2.9.0: 5 MiB, 1 MiB/s"),
        (
            {"phase": UNPACK, "file": "", "done": 1 << 30, "total": 3 << 30, "seconds": 10.0},
            "unpacking: 1 GiB of 3 GiB, 102 MiB/s, 20 s left",
        ),
        # pip compiles what it has unpacked.
        (
            {"phase": UNPACK, "file": "", "done": 4 << 30, "total": 3 << 30, "seconds": 40.0},
            "unpacking: 4 GiB, 102 MiB/s",
        ),
        ({"phase": COMPILE, "file": "", "done": 31, "total": 78}, "compiling 31 of 78 modules"),
        ({"file": ""}, ""),
    ],
)
def test_how_far_it_is(given, expected):
    assert pip_progress.text(record(**given)) == expected


def test_the_host_that_is_least_far():
    records = {"n1": record(phase=UNPACK), "n2": record(done=9), "n3": record(done=7), "n4": record(number=4)}
    assert pip_progress.slowest(records) == "n3" and pip_progress.slowest({}) == ""


def test_an_environment_records_its_installation_until_it_ends(tmp_path):
    scratch, lib = tmp_path / ".pip-x", tmp_path / "lib"
    (scratch / "pip-unpack-1").mkdir(parents=True)
    lib.mkdir()
    (lib / "before.py").write_text("x" * 50)
    progress = environment_progress.Progress(tmp_path, scratch)
    progress.read(f"  Downloading {TORCH} (530.7 MB)")
    with zipfile.ZipFile(scratch / "pip-unpack-1" / TORCH, "w") as wheel:
        wheel.writestr("torch.py", "y" * 1000)
    written = progress.record()
    assert (written["total"], written["done"] > 1000) == (530_700_000, True)
    progress.read("Installing collected packages: torch")
    (lib / "torch.py").write_text("y" * 400)
    written = progress.record()
    assert (written["phase"], written["done"], written["total"]) == (UNPACK, 400, 1000)
    progress.compiles()
    (lib / "torch.cpython-311.pyc").touch()
    written = progress.record()
    assert (written["phase"], written["done"], written["total"]) == (COMPILE, 1, 2)
    environment_progress.write_json(tmp_path / environment_progress.FILE, written)
    assert environment_progress.read(tmp_path) == written
    environment_progress.write_json(tmp_path / environment_progress.FILE, {**written, "done": -1})
    assert environment_progress.read(tmp_path) is None
    with progress:
        pass
    assert not (tmp_path / environment_progress.FILE).exists()
    assert environment_progress.read(tmp_path / "nowhere") is None


def test_an_error_of_the_reader_is_not_one_of_the_command():
    def read(line):
        raise FileNotFoundError(line)

    with pytest.raises(FileNotFoundError, match="hello"):
        commands.follow([sys.executable, "-c", "print('hello')"], read)
    assert commands.follow(["/nowhere/pip"], print).status == commands.NOT_STARTED
