"""Saved outputs of tools: each form is read, and a cut output is never taken for a complete one."""

from __future__ import annotations

import json
import re
from pathlib import Path

import accelerator_info
import network_info
import pytest
from ansible.module_utils.testing import patch_module_args
from ansible.module_utils.trainyard.hardware import captures, nvidia_smi, rdma_tools
from hypothesis import given
from hypothesis import strategies as st

SAVED = Path(__file__).resolve().parents[2] / "fixtures/saved"


def read(name):
    return (SAVED / f"{name}.txt").read_text()


def test_the_table_of_eight_gpus():
    found = captures.accelerators(read("nvidia-smi"))
    assert (found["vendor"], found["driver"], found["problems"]) == ("nvidia", "470.103.01", [])
    assert [device["pci"] for device in found["devices"]][:2] == ["0000:07:00.0", "0000:0b:00.0"]
    assert {device["memory_mib"] for device in found["devices"]} == {40536}
    assert found["devices"][0]["uuid"] is None
    assert found["notes"][0] == "GPU 0: nvidia-smi's table cuts the name `NVIDIA A100-SXM...`"


def test_the_list_of_eight_gpus():
    found = captures.accelerators(read("nvidia-smi-L"))
    assert {device["model"] for device in found["devices"]} == {"NVIDIA A100-SXM4-40GB"}
    assert found["devices"][7]["uuid"] == "GPU-00000007-1111-2222-3333-444444444444"
    fewer = re.sub(r"GPU 3: .*\n", "", read("nvidia-smi-L"))
    assert captures.accelerators(fewer)["problems"] == ["nvidia-smi -L has no GPU 3, but later ones"]


def test_a_silent_gpu_and_a_gpu_with_mig():
    found = captures.accelerators(read("nvidia-smi-h100"))
    assert [device["mig"] for device in found["devices"]] == [True, False]
    assert found["problems"][0].startswith("GPU 1 does not answer: nvidia-smi printed |   1  NVIDIA H100 80GB HBM3")


MIG = """\
|   0  NVIDIA A100-SXM4-40GB          On  |   00000000:17:00.0 Off |                   On |
| N/A   34C    P0             56W /  400W |      37MiB /  40960MiB |     N/A      Default |
|                                         |                        |              Enabled |
+-----------------------------------------+------------------------+----------------------+
| MIG devices:                                                                            |
+------------------+----------------------------------+-----------+-----------------------+
| GPU  GI  CI  MIG |                     Memory-Usage |        Vol|      Shared           |
|      ID  ID  Dev |                       BAR1-Usage | SM     Unc| CE ENC  DEC  OFA  JPG |
|==================+==================================+===========+=======================|
|  0    1   0   0  |              19MiB / 19968MiB    | 42      0 |  3   0    2    0    0 |
|                  |                 0MiB / 32767MiB  |           |                       |
+------------------+----------------------------------+-----------+-----------------------+
| Processes:                                                                              |
"""


def test_memory_of_a_mig_slice_is_not_that_of_its_gpu():
    [device] = captures.accelerators(MIG)["devices"]
    assert (device["memory_mib"], device["mig"]) == (40960, True)
    lines = MIG.splitlines(keepends=True)
    # The row with the GPU's own memory is lost, or says nothing; and the heads of both tables with it.
    for own in ("", lines[1].replace("37MiB /  40960MiB", "             N/A  ")):
        for rest in (lines[2:], lines[9:]):
            found = captures.accelerators("".join([lines[0], own, *rest]))
            assert [(each["memory_mib"], each["mig"]) for each in found["devices"]] == [(None, True)]
            assert "GPU 0: nvidia-smi's table has no memory of it" in found["problems"]


@pytest.mark.parametrize("rest", ["", "GPU 1: NVIDIA A100-SXM4-40GB (UUID: GPU-1)\n", read("nvidia-smi")])
def test_a_lost_gpu_is_a_problem(rest):
    found = captures.accelerators(f"Unable to determine the device handle for gpu 0000:47:00.0: Unknown Error\n{rest}")
    assert found["vendor"] == "nvidia" and (rest == "") == (found["devices"] == [])
    assert "0000:47:00.0" in "\n".join(found["problems"])


def test_lspci_alone_shows_devices_without_a_driver():
    named = "af:00.0 Processing accelerators [1200]: Huawei Technologies Co., Ltd. Device [19e5:d802]\n"
    numbers = "17:00.0 0302: 10de:20b0 (rev a1)\n0000:c1:00.0 Class 1200: 19e5:d802\n75:00.0 1200: 19e5:a250\n"
    for text, vendor, shown in (
        (named, "ascend", "1 Ascend NPU(s) (0000:af:00.0) but npu-smi is not"),
        (numbers, "nvidia", "1 NVIDIA GPU(s) (0000:17:00.0) but nvidia-smi is not"),
    ):
        found = captures.accelerators(text)
        assert (found["vendor"], found["devices"]) == (vendor, [])
        assert found["problems"][0].startswith(f"the PCI bus shows {shown}")
    assert captures.accelerators(numbers.partition("\n")[2])["vendor"] == "ascend"
    assert captures.accelerators("1a:00.0 0680: 10de:22a3 (rev a1)\n")["vendor"] == "none"
    engine = "75:00.0 Processing accelerators: Huawei Technologies Co., Ltd. HiSilicon ZIP Engine (rev 21)\n"
    assert captures.accelerators(engine)["vendor"] == "none"


def test_ports_of_ibstat():
    found = captures.networks(read("ibstat"))
    assert found["problems"] == []
    names = ("device", "state", "physical_state", "rate_gbps", "link_layer", "active")
    assert [tuple(port[name] for name in names) for port in found["rdma"]] == [
        ("mlx5_0", "ACTIVE", "LinkUp", 400.0, "InfiniBand", True),
        ("mlx5_1", "ACTIVE", "LinkUp", 200.0, "Ethernet", True),
        ("mlx5_10", "DOWN", "Disabled", 40.0, "Ethernet", False),
    ]


def test_ibstatus_and_ibdev2netdev():
    found = captures.networks(read("ibstatus"))
    ports = [(port["state"], port["rate_gbps"], port["active"]) for port in found["rdma"]]
    assert ports == [("ACTIVE", 100.0, True), ("INIT", 400.0, False)]
    found = captures.networks(read("ibdev2netdev"))
    assert not any(port["active"] for port in found["rdma"])
    assert found["problems"][0].startswith("nothing says the state of mlx5_0:1, mlx5_1:1, mlx5_10:1")
    verbose = "0000:1a:00.0 mlx5_0 (MT4123 - MCX653105A-HDAT) ConnectX-6 fw 20.31.1014 port 1 (ACTIVE) ==> ib0 (Up)\n"
    [port] = captures.networks(verbose)["rdma"]
    assert (port["device"], port["netdev"], port["state"], port["active"]) == ("mlx5_0", "ib0", "ACTIVE", True)


def test_an_adapter_that_ibstat_cannot_open_is_a_problem():
    panic = "ibpanic: [1323906] main: stat of IB device 'mlx5_8' failed: No"
    assert captures.networks(f"{read('ibstat')}{panic}\n")["problems"] == [f"ibstat: {panic}"]


def test_ports_of_rdma_link():
    text = (
        "link mlx5_0/1 state ACTIVE physical_state LINK_UP netdev ens1f0np0 \n"
        "link mlx5_1/1 state DOWN physical_state DISABLED netdev ens1f1np1\n"
        "link ib0/1 subnet_prefix fe80:0000:0000:0000 lid 1 sm_lid 1 lmc 0 state ACTIVE physical_state LINK_UP \n"
    )
    found = captures.networks(text)
    names = ("device", "state", "physical_state", "netdev", "active")
    assert found["problems"] == [] and [tuple(port[name] for name in names) for port in found["rdma"]] == [
        ("mlx5_0", "ACTIVE", "LinkUp", "ens1f0np0", True),
        ("mlx5_1", "DOWN", "Disabled", "ens1f1np1", False),
        ("ib0", "ACTIVE", "LinkUp", None, True),
    ]


TABLE = (
    "| npu-smi 23.0.0  Version: 23.0.0 |\n| NPU Name | Health | Power |\n| Chip | Bus-Id | AICore |\n"
    "| 0 910B3 | OK | 92.0 |\n| 0 | 0000:C1:00.0 | 0 3314 / 65536 |\n| NPU Chip | Process id | Process name |\n"
)


def test_outputs_of_npu_smi():
    for text in (read("npu-smi-l"), read("npu-smi-m")):
        found = captures.accelerators(text)
        assert [(device["index"], device["card"]) for device in found["devices"]] == [(0, 0), (1, 1)]
        assert found["problems"] == [] and "health and bus addresses are unknown" in found["notes"][0]
    (device,) = captures.accelerators(TABLE)["devices"]
    assert (device["health"], device["pci"], device["memory_mib"]) == ("OK", "0000:c1:00.0", 65536)
    cut = captures.accelerators(read("npu-smi-l").replace(": 2", ": 8"))
    assert "counts 8 NPUs and lists 2" in cut["problems"][0]


def test_a_failed_nvidia_smi_has_its_remedy():
    text = "Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 550.107\n"
    found = captures.accelerators(text)
    assert found["vendor"] == "nvidia" and found["problems"][0].endswith("kernel module: restart the node")


@pytest.mark.parametrize(
    ("read_it", "text", "why"),
    [
        (captures.accelerators, "hello\n", "no output of a tool that names accelerators: give one of nvidia-smi, "),
        (captures.accelerators, read("ibstat"), "no output of a tool that names accelerators"),
        (captures.networks, read("nvidia-smi"), "no output of a tool that names RDMA ports: give one of ibstat, "),
        (
            captures.accelerators,
            read("nvidia-smi") + read("lspci"),
            "it holds outputs of nvidia-smi, lspci: give a file for each command",
        ),
    ],
)
def test_other_files_are_refused(read_it, text, why):
    with pytest.raises(ValueError, match=re.escape(why)):
        read_it(text)


def ports_of(parse):
    return lambda text: dict(zip(("devices", "problems"), parse(text)))


FORMS = {
    "table": (nvidia_smi.parse_table, read("nvidia-smi")),
    "list": (nvidia_smi.parse_list, read("nvidia-smi-L")),
    "ibstat": (ports_of(rdma_tools.parse_ibstat), read("ibstat")),
    "ibstatus": (ports_of(rdma_tools.parse_ibstatus), read("ibstatus")),
}


@pytest.mark.parametrize("form", ["table", "ibstat"])
@given(data=st.data())
def test_a_cut_output_is_a_problem(form, data):
    """`nvidia-smi -L` and ibstatus do not say how many there are."""
    parse, text = FORMS[form]
    count = len(parse(text)["devices"])
    lines = text.splitlines(keepends=True)
    at = data.draw(st.integers(0, len(lines)))
    # The last lines of ibstat's adapters are where a cut leaves nothing to see.
    seen = form != "ibstat" or (0 < at < len(lines) and not lines[at].startswith("CA "))
    for cut in ("".join(lines[:at]), "".join(lines[at:])):
        found = parse(cut)
        if seen and cut.strip():
            assert len(found["devices"]) in (0, count) or found["problems"]


@pytest.mark.parametrize("form", FORMS)
@given(data=st.data())
def test_a_missing_line_invents_no_value(form, data):
    parse, text = FORMS[form]
    lines = text.splitlines(keepends=True)
    at = data.draw(st.integers(0, len(lines) - 1))
    found = parse("".join(lines[:at] + lines[at + 1 :]))
    for device, other in zip(found["devices"], parse(text)["devices"]):
        if device.get("index") == other.get("index") and device.get("device") == other.get("device"):
            assert all(device[name] in (other[name], None, False) for name in device) or found["problems"]


@pytest.mark.parametrize(
    ("module", "name", "key"), [(accelerator_info, "nvidia-smi", "accelerators"), (network_info, "ibstat", "networks")]
)
def test_the_modules_read_a_capture(module, name, key, capsys, tmp_path):
    def call(path):
        with patch_module_args({"capture": str(path)}), pytest.raises(SystemExit):
            module.main()
        return json.loads(capsys.readouterr().out)

    right = call(SAVED / f"{name}.txt")
    assert not right["changed"] and right[key]
    # As PowerShell redirects.
    wide = tmp_path / "wide.txt"
    wide.write_bytes(read(name).encode("utf-16"))
    assert call(wide)[key] == right[key]
    (tmp_path / "other.txt").write_text("hello\n")
    assert "other.txt: no output of a tool that names" in call(tmp_path / "other.txt")["msg"]
    assert "cannot be read: No such file" in call(tmp_path / "gone.txt")["msg"]
