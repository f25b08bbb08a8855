"""The NVIDIA Container Toolkit: the specification of the GPUs for containers, and findings on it."""

import json

import container_runtime
import pytest
from ansible.module_utils.testing import patch_module_args
from ansible.module_utils.trainyard.nvidia import container_toolkit
from ansible.module_utils.trainyard_node.machine.tree import Tree
from ansible.module_utils.trainyard_node.nvidia import cdi_specification

# Published in issue 50 of NVIDIA/nvidia-container-toolkit.
VERSION = "NVIDIA Container Toolkit CLI version 1.12.0\ncommit: 62bd015475656ef795cb0d59cc4030a6bd4a9526\n"
# Composed from the vendor's documentation; the log goes to stderr.
LIST = 'time="2026-01-01T00:00:00Z" level=info msg="Found 2 CDI devices"\nnvidia.com/gpu=0\nnvidia.com/gpu=all\n'
NO_DRIVER = "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.\n"
GPUS = "GPU 0: NVIDIA A100-SXM4-80GB (UUID: GPU-1)\n"


@pytest.mark.parametrize(
    ("text", "version"),
    [(VERSION, "1.12.0"), ("NVIDIA Container Toolkit CLI version 1.18.0-rc.1\n", "1.18.0-rc.1"), ("", "")],
)
def test_the_version_of_the_toolkit(text, version):
    assert container_toolkit.toolkit_version(text) == version


@pytest.mark.parametrize(
    ("text", "version"),
    [("580.126.09\n580.126.09\n", "580.126.09"), ("550.127.08", "550.127.08"), (NO_DRIVER, ""), ("", "")],
)
def test_the_version_of_the_driver(text, version):
    assert container_toolkit.driver_version(text) == version


def test_the_devices_that_containers_can_get():
    assert container_toolkit.listed_devices(LIST) == ["nvidia.com/gpu=0", "nvidia.com/gpu=all"]
    assert container_toolkit.listed_devices('time="x" level=info msg="Found 0 CDI devices"\n') == []


def test_a_specification_is_written_again_when_something_has_changed():
    known = container_toolkit.header("580.126.09", "1.17.8", GPUS)
    assert not container_toolkit.is_due(f"{known}cdiVersion: 0.5.0\n", known)
    for other in (
        ("570.1", "1.17.8", GPUS),
        ("580.126.09", "1.18.0", GPUS),
        ("580.126.09", "1.17.8", f"{GPUS}GPU 1\n"),
    ):
        assert container_toolkit.is_due(f"{known}cdiVersion: 0.5.0\n", container_toolkit.header(*other))
    assert container_toolkit.is_due(None, known)
    # Somebody else's stays.
    assert not container_toolkit.is_due("cdiVersion: 0.5.0\n", known)


GOOD = {
    **{
        "step": "cdi",
        "host": "g1",
        "path": "/etc/cdi/nvidia.yaml",
        "driver": "580.126.09",
        "toolkit": "1.17.8",
        "driver_output": "",
    },
    **{"devices": ["/dev/nvidia0"], "exists": True, "due": False, "listed": ["nvidia.com/gpu=0", "nvidia.com/gpu=all"]},
}


@pytest.mark.parametrize(
    ("changes", "found", "action"),
    [
        (
            {"driver": "", "driver_output": NO_DRIVER.strip()},
            "nvidia-smi: NVIDIA-SMI has failed",
            "run the role nvidia_d",
        ),
        ({"driver": ""}, "nvidia-smi: not installed", "or set container_runtime_nvidia to false"),
        ({"toolkit": ""}, "no nvidia-ctk that answers", "run the role container_runtime"),
        ({"toolkit": "1.17.7"}, "version 1.17.7", "run the role container_runtime"),
        ({"due": True, "exists": False}, "no /etc/cdi/nvidia.yaml", "run the role container_runtime"),
        ({"due": True}, "/etc/cdi/nvidia.yaml of another driver", "run the role container_runtime"),
        ({"listed": []}, "nvidia-ctk cdi list names no device", "remove /etc/cdi/nvidia.yaml"),
        ({"listed": ["nvidia.com/gpu=0"]}, "nvidia-ctk cdi list names nvidia.com/gpu=0", "remove /etc/cdi/nvidia.yaml"),
    ],
)
def test_why_containers_would_not_get_the_gpus(changes, found, action):
    (finding,) = container_toolkit.cdi_findings([{**GOOD, **changes}], "1.17.8-1")
    assert finding.host == "g1" and found in finding.found and action in finding.action


def test_a_node_in_order_has_no_finding():
    assert container_toolkit.cdi_findings([GOOD], "1.17.8-1") == []
    assert container_toolkit.cdi_findings([{**GOOD, "toolkit": "1.16.2"}], "") == []


@pytest.fixture
def captured(tmp_path):
    for name, text in {
        "commands/nvidia-smi.driver_version.out": "580.126.09\n",
        "commands/nvidia-smi.L.out": GPUS,
        "commands/nvidia-ctk.version.out": VERSION,
        "commands/nvidia-ctk.cdi-list.out": LIST,
        **dict.fromkeys(("dev/nvidia0", "dev/nvidia10", "dev/nvidiactl", "dev/nvidia-uvm", "dev/null"), ""),
    }.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    return tmp_path


def test_the_state_of_a_captured_node(captured):
    state = cdi_specification.read_state(Tree(str(captured)), "g1", "/nvidia.yaml")
    assert (state["driver"], state["toolkit"]) == ("580.126.09", "1.12.0")
    assert state["devices"] == ["/dev/nvidia0", "/dev/nvidia10", "/dev/nvidiactl"]
    assert (state["exists"], state["due"], state["listed"][-1]) == (False, True, "nvidia.com/gpu=all")
    (captured / "nvidia.yaml").write_text(state["header"])
    assert not cdi_specification.read_state(Tree(str(captured)), "g1", "/nvidia.yaml")["due"]
    (captured / "commands/nvidia-smi.driver_version.rc").write_text("9\n")
    (captured / "commands/nvidia-smi.driver_version.out").write_text(NO_DRIVER)
    broken = cdi_specification.read_state(Tree(str(captured)), "g1", "/nvidia.yaml")
    assert (broken["driver"], broken["driver_output"]) == ("", NO_DRIVER.strip())


@pytest.fixture
def programs(tmp_path, monkeypatch):
    """Fakes of nvidia-smi and nvidia-ctk, first in PATH."""
    for name, text in {
        "nvidia-smi": f"case $1 in -L) echo '{GPUS.strip()}' ;; *) echo 580.126.09 ;; esac",
        "nvidia-ctk": (
            'case "$1 $2" in "--version ") echo "NVIDIA Container Toolkit CLI version 1.17.8" ;; '
            f'"cdi generate") test ! -e {tmp_path}/broken || {{ echo "no NVML" >&2; exit 1; }}; '
            'echo "cdiVersion: 0.5.0" >"${3#--output=}" ;; *) echo nvidia.com/gpu=all ;; esac'
        ),
    }.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    return tmp_path


def cdi(capsys, path, **given):
    with patch_module_args({"step": "cdi", "host": "g1", "path": str(path), **given}), pytest.raises(SystemExit):
        container_runtime.main()
    return json.loads(capsys.readouterr().out)


def test_the_module_writes_once(programs, capsys):
    path = programs / "cdi/nvidia.yaml"
    preview = cdi(capsys, path, _ansible_check_mode=True)
    assert preview["changed"] and preview["state"]["due"] and not path.parent.exists()
    written = cdi(capsys, path)
    assert written["changed"] and not written["state"]["due"]
    assert path.read_text() == f"{container_toolkit.header('580.126.09', '1.17.8', GPUS)}cdiVersion: 0.5.0\n"
    assert path.stat().st_mode & 0o777 == 0o644
    assert not cdi(capsys, path)["changed"]
    path.write_text("cdiVersion: 0.3.0\n")
    assert not cdi(capsys, path)["changed"] and path.read_text() == "cdiVersion: 0.3.0\n"


def test_a_toolkit_that_fails_is_named(programs, capsys):
    (programs / "broken").touch()
    answer = cdi(capsys, programs / "nvidia.yaml")
    assert answer["failed"] and answer["msg"].startswith("g1: nvidia-ctk cannot describe the GPUs: no NVML.")
    assert not (programs / "nvidia.yaml").exists()
