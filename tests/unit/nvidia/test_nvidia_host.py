"""Facts of a host for NVIDIA's software: captured trees, and the parser of each tool."""

from __future__ import annotations

import json
from pathlib import Path

import nvidia_driver
import pytest
from ansible.module_utils.testing import patch_module_args
from ansible.module_utils.trainyard.nvidia import nvidia_hardware
from ansible.module_utils.trainyard.nvidia.nvidia_answers import FACTS
from ansible.module_utils.trainyard_node.machine.tree import Tree
from ansible.module_utils.trainyard_node.nvidia.host import read_host
from captured_tree import unfold
from filters import fitting
from hypothesis import given
from hypothesis import strategies as st

TREES = Path(__file__).resolve().parents[2] / "fixtures" / "nvidia_hosts"
EFI_VARIABLE = "sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"


@pytest.fixture
def read(tmp_path):
    """Return a function that reads a captured host, after `change` has altered its folder."""

    def read_one(name, change=lambda root: None):
        root = unfold(name, tmp_path / name, TREES)
        change(root)
        return fitting(read_host(Tree(str(root))), FACTS)

    return read_one


@pytest.mark.parametrize(
    ("name", "gpus", "generation", "switches", "ports", "system", "arch"),
    [
        ("v100", "8x V100 SXM2 32GB", "volta", 0, 4, "ubuntu 20.04", "x86_64"),
        ("a100", "8x A100 SXM4 80GB", "ampere", 6, 8, "ubuntu 22.04", "x86_64"),
        ("h100_nvswitch", "8x H100 SXM5 80GB", "hopper", 4, 8, "ubuntu 24.04", "x86_64"),
        ("h200_vm", "1x H200 SXM 141GB", "hopper", 0, 0, "ubuntu 24.04", "x86_64"),
        ("b200", "8x B200", "blackwell", 4, 8, "ubuntu 24.04", "x86_64"),
        ("gh200", "1x GH200 120GB / 480GB", "hopper", 0, 1, "ubuntu 22.04", "aarch64"),
        ("none", "none", "", 0, 0, "debian 12", "x86_64"),
    ],
)
def test_hosts_are_read(read, name, gpus, generation, switches, ports, system, arch):
    host = read(name)
    assert nvidia_hardware.describe_gpus(host["gpus"]) == gpus
    assert {gpu["generation"] for gpu in host["gpus"]} == ({generation} if generation else set())
    assert (host["nvswitches"], host["rdma_ports"]) == (switches, ports)
    assert (nvidia_hardware.described_os(host), host["arch"]) == (system, arch)


def test_a_host_with_two_models_and_a_virtual_function(read):
    host = read("mixed")
    assert [(gpu["pci"], gpu["name"], gpu["generation"]) for gpu in host["gpus"]] == [
        ("0000:3b:00.0", "V100 PCIe 32GB", "volta"),
        ("0000:af:00.0", "A40", "ampere"),
    ]
    broken = ["linux-image-6.1.0-41-amd64 (half-configured)"]
    assert host["apt"] == {"held": ["linux-headers-amd64"], "broken": broken, "kept": []}
    assert host["kernel"] == {"running": "6.1.0-41-amd64", "headers": [], "headers_available": True}
    assert host["free_mib"] == {"/": 900, "/usr": 900, "/boot": 200, "/var": 900}


def test_the_rest_of_a_host(read):
    host = read("v100")
    assert (host["nouveau"], host["secure_boot"], host["gcc"], host["virtual"]) == (True, "none", "9.4.0", "")
    assert host["kernel"]["headers"] == ["5.4.0-216-generic"]
    assert host["cuda"] == [] and not any(host["apt"].values())
    host = read("a100")
    assert (host["nouveau"], host["secure_boot"], host["cuda"]) == (False, "disabled", ["12.4"])
    assert "nvidia-open-550" in host["apt"]["held"] and "nvidia-open-550" in host["apt"]["kept"]
    assert read("h100_nvswitch")["secure_boot"] == "enabled"


FILES = {
    "srv/sw/cuda-11.4.4/bin/nvcc": "",
    "srv/sw/cuda-12.4/README": "",
    "usr/lib/nvidia-cuda-toolkit/bin/nvcc": "",
    "srv/state/driver.json": '{"nvidia-open-580": {"version": "580.95.05-0ubuntu1", "added": true}}',
    "srv/state/torn.json": '{"nvidia',
    "srv/state/number.json": "3",
}


def test_toolkits_and_records_of_other_folders(tmp_path):
    for path, text in FILES.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    host = fitting(read_host(Tree(str(tmp_path)), ["/usr/local", "/srv/sw"], "/srv/state"), FACTS)
    assert (host["cuda"], host["apt"]["kept"]) == (["11.4.4", "distro"], ["nvidia-open-580"])


def test_headers_as_a_folder_and_by_links(read):
    makefile = "usr/src/linux-headers-5.4.0-216-generic/Makefile"
    assert read("v100", lambda root: (root / makefile).unlink())["kernel"]["headers"] == [], "a link to removed headers"

    def change(root):
        build = root / "lib/modules/6.12.1/build"
        build.mkdir(parents=True)
        (build / "Makefile").touch()
        (root / "lib/modules/6.12.2").mkdir()
        (root / "lib/modules/6.12.2/build").symlink_to("../6.12.1/build")

    assert read("none", change)["kernel"]["headers"] == ["6.12.1", "6.12.2"]


def test_headers_are_not_known_to_be_offered_without_package_lists(read):
    def change(root):
        for path in (root / "var/lib/apt/lists").iterdir():
            path.unlink()

    assert read("none", change)["kernel"]["headers_available"] is None
    host = read("h100_nvswitch", lambda root: (root / "commands/apt-cache.headers.out").write_text(""))
    assert host["kernel"]["headers_available"] is False


@pytest.mark.parametrize(("value", "state"), [(1, "enabled"), (0, "disabled"), (7, "unknown"), (None, "unknown")])
def test_secure_boot_by_the_variable_which_needs_no_tool(read, value, state):
    def change(root):
        if value is None:
            return (root / "commands/mokutil.sb-state.out").unlink()
        variable = root / EFI_VARIABLE
        variable.parent.mkdir(parents=True)
        return variable.write_bytes(bytes([6, 0, 0, 0, value]))

    assert read("h100_nvswitch", change)["secure_boot"] == state


def test_a_host_without_tools_is_read_all_the_same(tmp_path):
    host = fitting(read_host(Tree(str(tmp_path))), FACTS)
    assert host["os"] == {"id": "", "version": "", "family": ""}
    assert (host["arch"], host["gcc"], host["gpus"], host["free_mib"], host["secure_boot"]) == ("", "", [], {}, "none")


GPUS = {
    **{"0x102d": "K80, kepler", "0x17fd": "M40, maxwell", "0x15f9": "P100 SXM2 16GB, pascal", "0x1eb8": "T4, turing"},
    **{"0x1b06": "GeForce GTX 1080 Ti, pascal", "0x1db6": "V100 PCIe 32GB, volta", "0x2182": ", turing"},
    **{"0x20b7": "A30, ampere", "0x2236": "A10, ampere", "0x2531": "RTX A2000, ampere", "0x27b8": "L4, ada"},
    **{"0x26b9": "L40S, ada", "0x2335": "H200 SXM 141GB, hopper", "0x2342": "GH200 120GB / 480GB, hopper"},
    **{"0x2901": "B200, blackwell", "0x2941": "GB200, blackwell"},
    **dict.fromkeys(("0x0020", "0xffff", ""), ", unknown"),
}


@pytest.mark.parametrize("device", GPUS)
def test_generations_by_device_id(device):
    assert ", ".join(nvidia_hardware.gpu_of(device)) == GPUS[device]


def test_every_gpu_with_a_name_has_a_generation_and_ranges_do_not_overlap():
    for number in nvidia_hardware._NAMES:
        assert nvidia_hardware.gpu_of(hex(number))[1] in nvidia_hardware.GENERATIONS
    last = 0
    for first, end, generation in nvidia_hardware._RANGES:
        assert last < first <= end and generation in nvidia_hardware.GENERATIONS
        last = end


BROKEN = {
    **{"iU ": "unpacked", "iH ": "half-installed", "iF ": "half-configured", "hF ": "half-configured"},
    **{"iiR": "to be reinstalled"},
}


@pytest.mark.parametrize("status", ["ii ", "rc ", "hi ", *BROKEN])
def test_broken_and_held_packages(status):
    found = nvidia_hardware.read_packages(f"nonsense\n{status}\tname\t1\n")
    broken = [f"name ({BROKEN[status]})"] if status in BROKEN else []
    assert found == {"held": ["name"] if status.startswith("h") else [], "broken": broken}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('ID=rocky\nVERSION_ID="9.4"\nID_LIKE="rhel fedora"', {"id": "rocky", "version": "9.4", "family": "redhat"}),
        ('ID="sles"\nVERSION_ID="15.6"', {"id": "sles", "version": "15.6", "family": "suse"}),
        ('ID=pop\nID_LIKE="ubuntu debian"\nVERSION_ID="22.04"', {"id": "pop", "version": "22.04", "family": "debian"}),
        ("ID=void", {"id": "void", "version": "", "family": "void"}),
        (None, {"id": "", "version": "", "family": ""}),
    ],
)
def test_operating_systems(text, expected):
    assert nvidia_hardware.read_os(text) == expected


def test_a_missing_line_of_df():
    output = "Filesystem 1024-blocks Used Available Capacity Mounted on\n/dev/sda1 100 50 51200 50% /\n"
    assert nvidia_hardware.read_free(["/"], output) == {"/": 50}
    assert nvidia_hardware.read_free(["/", "/usr"], output) == {}


@given(st.text(max_size=200))
def test_whatever_tools_print_is_read_without_an_error(text):
    nvidia_hardware.read_packages(text)
    nvidia_hardware.read_free(["/"], text)
    nvidia_hardware.read_os(text)
    nvidia_hardware.gpu_of(text)
    nvidia_hardware.number(text)
    nvidia_hardware.secure_boot(True, text, text)
    assert nvidia_hardware.first_version(text) == "" or nvidia_hardware.number(text.strip())


def test_versions_compare_as_numbers():
    assert nvidia_hardware.number("470.103.01") == (470, 103, 1)
    assert nvidia_hardware.number("6.8.0-1014-nvidia-64k") == (6, 8, 0, 1014)
    assert (nvidia_hardware.branch_of("550.127.08"), nvidia_hardware.branch_of("5500")) == ("550", "")


def test_the_module_returns_the_facts(tmp_path, capsys):
    root = unfold("gh200", tmp_path / "gh200", TREES)
    with patch_module_args({"step": "host", "root": str(root)}), pytest.raises(SystemExit):
        nvidia_driver.main()
    result = json.loads(capsys.readouterr().out)
    assert result["changed"] is False
    assert result["nvidia_host"]["gpus"][0]["pci"] == "0009:01:00.0"
