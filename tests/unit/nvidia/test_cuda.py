"""CUDA toolkits: what their files and programs say, read of a node that was captured."""

from __future__ import annotations

import json
import re

import cuda_toolkit
import pytest
import yaml
from ansible.module_utils.testing import patch_module_args
from ansible.module_utils.trainyard.nvidia import cuda, cuda_verify
from ansible.module_utils.trainyard.nvidia.nvidia_answers import TOOLKITS
from ansible.module_utils.trainyard_node.machine.tree import Tree
from ansible.module_utils.trainyard_node.nvidia.cuda_toolkits import read_cuda
from cuda_states import ROOT, toolkit
from filters import fitting, of_hosts
from hypothesis import given
from hypothesis import strategies as st

# The output of nvcc 13.0.
NVCC_13 = """Built on Wed_Aug_20_01:58:59_PM_PDT_2025
Cuda compilation tools, release 13.0, V13.0.88
Build cuda_13.0.r13.0/compiler.36424714_0
"""
HOST_CONFIG = """#if defined(__GNUC__) && !defined(__INTEL_LLVM_COMPILER)
#if __GNUC__ > 15
#error -- unsupported GNU version! gcc versions later than 15 are not supported!
#endif /* __GNUC__ > 15 */
"""


def test_versions_are_read_from_what_nvcc_and_the_toolkit_say():
    assert cuda.nvcc_version(NVCC_13) == "13.0.88"
    assert cuda.nvcc_version("nvcc fatal : error") == ""
    assert cuda.toolkit_version('{"cuda": {"name": "CUDA SDK", "version": "12.4.1"}}') == "12.4.1"
    for text in (None, "", "{", "[]", '{"cuda": 1}', '{"cuda": {"version": 1}}'):
        assert cuda.toolkit_version(text) == ""
    assert cuda.newest_gcc_of(HOST_CONFIG) == "15"
    assert cuda.newest_gcc_of(None) == ""


NEWEST = {
    **{"10.2": "8", "11.0": "9", "11.1": "10", "11.4.0": "10", "11.4": "11.1", "11.4.4": "11.1", "11.6": "11"},
    **{"11.8.0": "11", "12.0": "12", "12.3.2": "12", "12.4.1": "13", "12.6": "13", "12.8": "14", "13.0": "15"},
    **{"13.2.1": "15", "14.0": ""},
}


@pytest.mark.parametrize("version", NEWEST)
def test_the_newest_host_compiler_of_a_release(version):
    assert cuda.newest_gcc(version) == NEWEST[version]


def test_a_limit_names_a_whole_series():
    fitting = [("11.1.0", "11.1"), ("11.4.0", "11"), ("9", "11.1")]
    assert all(cuda.gcc_fits(gcc, newest) for gcc, newest in fitting)
    assert not cuda.gcc_fits("11.3.0", "11.1") and not cuda.gcc_fits("12.2.0", "11")


@given(st.text())
def test_any_text_can_be_read(text):
    for read in (cuda.nvcc_version, cuda.toolkit_version, cuda.newest_gcc_of, cuda.gcc_version):
        assert isinstance(read(text), str)
    assert cuda_verify.read_run(0, text, 5)["state"] in ("fail", "pass", "no device")


def test_packages_of_compilers():
    assert cuda.gcc_version("4:12.2.0-3\n") == cuda.gcc_version("12.2.0") == "12.2.0"
    packages = {
        name: cuda.compiler_package(name) for name in ("", "g++-11", "/usr/bin/g++-11", "/opt/gcc/bin/g++", "icc")
    }
    assert packages == {"": "g++", "g++-11": "g++-11", "/usr/bin/g++-11": "g++-11", "/opt/gcc/bin/g++": "", "icc": ""}


CAPTURED = {
    "etc/os-release": 'ID=ubuntu\nID_LIKE=debian\nVERSION_ID="22.04"\n',
    "usr/local/cuda-12.4/bin/nvcc": "",
    "usr/local/cuda-12.4/version.json": '{"cuda": {"version": "12.4.1"}}',
    "usr/local/cuda-12.4/include/crt/host_config.h": "#if __GNUC__ > 13\n",
    "var/lib/dpkg/info/cuda-toolkit-12-4.list": "",
    "opt/trainyard/cuda-11.4.4/.trainyard.json": '{"provider": "runfile", "sha256": "ab"}',
    "opt/trainyard/cuda-11.4.4/bin/nvcc": "",
    "opt/trainyard/nccl/include/nccl.h": "",
    "sys/bus/pci/devices/0000:1b:00.0/vendor": "0x10de",
    "sys/bus/pci/devices/0000:1b:00.0/class": "0x030200",
    "sys/bus/pci/devices/0000:1c:00.0/vendor": "0x10de",
    "sys/bus/pci/devices/0000:1c:00.0/class": "0x068000",
    "commands/nvcc.cuda-12.4.out": "Cuda compilation tools, release 12.4, V12.4.131\n",
    "commands/host-compiler.out": "/bin/sh: g++: not found\n",
    "commands/host-compiler.rc": "127",
    "commands/apt-cache.policy.out": "g++:\n  Installed: (none)\n  Candidate: 4:11.2.0-1ubuntu1\n  Version table:\n",
    "commands/sshd.config.out": "port 22\nsetenv PATH=/opt/trainyard/cuda/bin:/usr/bin\n",
    "commands/apt-cache.pkgnames.out": "g++-10\ng++-9\ng++-11-aarch64-linux-gnu\ng++-11\n",
}


@pytest.fixture
def captured(tmp_path):
    for name, content in CAPTURED.items():
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content)
    (tmp_path / "opt/trainyard/cuda").symlink_to("/usr/local/cuda-12.4")
    return tmp_path


def test_a_captured_node(captured):
    found = fitting(read_cuda(Tree(str(captured)), ROOT, ["/usr/local/cuda"], "", "train"), TOOLKITS)
    assert (found["os"], found["family"], found["gpus"]) == ("ubuntu 22.04", "debian", 1)
    assert found["default"] == "/usr/local/cuda-12.4"
    assert found["toolkits"] == {
        "/usr/local/cuda-12.4": toolkit("12.4.131", cuda="12.4.1", newest_gcc="13", kind="network_repo", named="12.4"),
        f"{ROOT}/cuda-11.4.4": toolkit(kind="runfile", named="11.4.4", record={"provider": "runfile", "sha256": "ab"}),
    }
    assert found["compiler"] == {"name": "g++", "version": "11.2.0", "installed": False}
    assert found["compilers"] == ["g++-9", "g++-10", "g++-11"]
    assert found["session"] == {"PATH": "/opt/trainyard/cuda/bin:/usr/bin"}
    assert found["nccl"] == f"{ROOT}/nccl"


def run(module, capsys, **params):
    with patch_module_args(params), pytest.raises(SystemExit):
        module.main()
    return json.loads(capsys.readouterr().out)


def test_what_a_node_has_is_planned_and_judged(captured, capsys):
    found = run(cuda_toolkit, capsys, step="read", cuda_root=ROOT, root=str(captured))["state"]
    documented = yaml.safe_load(cuda_toolkit.RETURN)["state"]["description"]
    assert set(found) <= set(re.findall(r"C\((\w+)\)", documented))
    node = {"state": found, "records": [{"provider": "network_repo", "version": "12.4.1"}], "default": "", "absent": []}
    wanted = {"pins": {}, "min_free_mib": {}, "host_compiler": "", "manage_system": True}
    made = of_hosts("cuda_toolkit_plan", {"n1": node}, wanted)
    assert made["findings"] == []
    assert made["nodes"]["n1"]["toolkits"][0]["install"] is False
    assert of_hosts("cuda_toolkit_findings", {"n1": found}, made["nodes"]) == []
