"""Mutate captured outputs: cut, doubled, mixed with another's lines, with CRLF, colors, huge numbers.

A parser returns a record that JSON can hold, or raises ValueError; it never fails otherwise. The meaning of a mutated
text is left to each parser's own tests.
"""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path

import pytest
from ansible.module_utils.trainyard.ascend import ascend_software
from ansible.module_utils.trainyard.cluster import session_environment, ssh_mesh, sshd_settings, survey, switches
from ansible.module_utils.trainyard.hardware import (
    accelerators,
    captures,
    gpu_health,
    gpu_links,
    interfaces,
    npu,
    nvidia_topology,
    ping_tools,
    rdma,
)
from ansible.module_utils.trainyard.job.placement import hostfile
from ansible.module_utils.trainyard.job.run.logs import failures, progress
from ansible.module_utils.trainyard.nvidia import (
    container_toolkit,
    cuda_verify,
    driver,
    nccl_lines,
    nccl_tests_output,
    nvidia_hardware,
)
from ansible.module_utils.trainyard.slurm import change as slurm_change
from ansible.module_utils.trainyard.slurm import health as slurm_health
from ansible.module_utils.trainyard.slurm import slurm_state, switch_tree
from ansible.module_utils.trainyard.software import apt, containers
from ansible.module_utils.trainyard.verify import pair_report
from ansible.module_utils.trainyard_node.cluster import baseline_check, identity, node_identity
from ansible.module_utils.trainyard_node.machine.tree import Tree
from ansible.module_utils.trainyard_node.nvidia import host as nvidia_host
from ansible.module_utils.trainyard_node.verify import facts as verify_facts
from captured_tree import unfold
from hypothesis import given, settings
from hypothesis import strategies as st

FIXTURES = Path(__file__).resolve().parents[1] / "fixtures"
PATTERN = progress.compile_pattern(progress.DEFAULT_PATTERN)


def texts(*globs):
    return [path.read_text() for glob in globs for path in sorted(FIXTURES.glob(glob))]


def commands(*words):
    """What captured machines answer to commands that have all of these words in their names."""
    found = []
    for path in sorted(FIXTURES.glob("*/*.tree")):
        inside, mark = [], None
        for line in path.read_text().splitlines():
            if mark is not None:
                if line == mark:
                    found.append("\n".join(inside) + "\n")
                    mark = None
                else:
                    inside.append(line)
            elif " <<" in line and all(word in line.partition(" <<")[0] for word in words):
                inside, mark = [], line.partition(" <<")[2]
    return found or pytest.fail(f"no captured machine answers {words}")


COLOUR, ESCAPES = "\x1b[1;31m", ("\x1b[2K\r", "\x1b]52;c;aGk=\x07", "\u202e", "\x00", "\ufffd")
NUMBERS = ("-1", "1e999", "nan", "9" * 4000, "0x1f", "٣", "", "N/A", "[Unknown Error]", "Insufficient Permissions")


def mutated(text, choose):
    """One text, changed once; `choose` is a random.Random."""
    lines = text.splitlines(keepends=True) or [""]
    at, line = choose.randrange(len(text) + 1), choose.randrange(len(lines))
    numbers = [found.span() for found in re.finditer(r"[0-9]+", text)]
    start, end = choose.choice(numbers or [(at, at)])
    return choose.choice(
        [
            lambda: text[:at],
            lambda: text[at:],
            lambda: text.replace("\n", "\r\n"),
            lambda: "\ufeff" + text,
            lambda: "".join(lines[:line] + lines[line + 1 :]),
            lambda: "".join([*lines[: line + 1], *lines[line:]]),
            lambda: "".join(choose.sample(lines, len(lines))),
            lambda: "".join(f"{COLOUR}{each}" for each in lines),
            lambda: text[:at] + choose.choice(ESCAPES) + text[at:],
            lambda: text[:start] + choose.choice(NUMBERS) + text[end:],
            lambda: text[:at] + choose.choice(lines) + text[at:],
            lambda: text.replace(choose.choice(",:=|/ "), choose.choice(" \t;:,")),
            lambda: "",
        ]
    )()


def as_json(value):
    """Lists and dictionaries of what a parser returned, as far as it travels."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        value = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if isinstance(value, dict):
        return {str(key): as_json(each) for key, each in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [as_json(each) for each in value]
    return value if isinstance(value, (str, int, float, bool, type(None))) else str(value)


DPKG = ["ii  \tlibnccl2\t2.18.3-1+cuda12.2\nrc  \tnvidia-driver\t525.1\n", "ii \tx:amd64\t1\n"]
SACCT = texts("slurm/sacct_*.txt")
PARSERS = {
    "nvidia-smi --query-gpu": (accelerators.parse_nvidia_query, commands("nvidia-smi.query-gpu")),
    "npu-smi info": (lambda text: accelerators.parse_npu_info(text, text), commands("npu-smi.info")),
    "npu-smi info -m": (accelerators.parse_npu_map, commands("npu-smi.info-m")),
    "nvidia-smi -q -x": (gpu_health.parse_query, [*commands("nvidia-smi.q-x"), *texts("verify/volta.xml")]),
    "nvidia-smi topo -m": (nvidia_topology.parse_topology, texts("nvidia_topology/*.txt")),
    "nvidia-smi nvlink": (gpu_links.parse_nvlinks, commands("nvidia-smi.nvlink")),
    "saved accelerators": (captures.accelerators, texts("saved/*.txt")),
    "saved networks": (captures.networks, texts("saved/*.txt")),
    "dmesg": (lambda text: gpu_health.parse_xids(text.splitlines()), commands("journalctl.dmesg")),
    "ip address": (interfaces.parse_ip_address, commands("ip.address")),
    "nccl.conf": (interfaces.parse_nccl_conf, commands("nccl.conf")),
    "rate": (interfaces.parse_rate, ["100 Gb/sec (4X EDR)", "2.5 Gb/sec (1X SDR)"]),
    "hccn.conf": (npu.parse_hccn_conf, ["address_0=10.0.0.1\nnetmask_0=255.255.255.0\naddress_1=fe80::1\n"]),
    "fields": (ascend_software.read_fields, ["Name=x\nVersion = 1.2\n", "a: b\nc=d"]),
    "ibv_devices": (rdma.parse_ibv_devices, ["    device     node GUID\n    ------\n    mlx5_0  0c42a103\n"]),
    "ibv_devinfo": (ping_tools.active_mtus, ["hca_id:\tmlx5_0\n\t\tport:\t1\n\t\t\tactive_mtu:\t\t1024 (3)\n"]),
    "lspci -vvv": (ping_tools.redirecting_bridges, [
        "4:1.0 PCI bridge: x\n\tExpress (v2) Downstream Port\n\t\tACSCtl:\tReqRedir+\n\n"
    ]),
    "ibv_rc_pingpong": (ping_tools.problem, ["100 iters in 0.01 seconds = 6.78 usec/iter\n", "Couldn't create QP\n"]),
    "os-release": (nvidia_hardware.read_os, commands("os-release")),
    "dpkg-query": (nvidia_hardware.read_packages, [*DPKG, *commands("dpkg-query")]),
    "df": (lambda text: nvidia_hardware.read_free(["/", "/opt"], text), commands("df.out")),
    "driver packages": (driver.read_packages, DPKG),
    "dkms": (driver.read_dkms, ["nvidia/525.1, 6.1.0-9-amd64, x86_64: installed\nnvidia/525.1: added\n"]),
    "/proc version": (driver.read_proc_version, commands("driver/nvidia/version")),
    "modinfo": (driver.read_modinfo, commands("modinfo")),
    "apt stanzas": (apt.read_stanzas, texts("apt/indextargets.txt")),
    "apt-cache policy": (apt.read_lists, texts("apt/policy.txt")),
    "apt-get -s": (apt.read_transaction, ["Inst a [1] (2 x:1/y [amd64])\nConf a (2 x)\nRemv b [3]\n"]),
    "apt-cache policy of packages": (lambda text: containers.candidates(text, ["podman"]), texts("apt/policy.txt")),
    "podman --version": (containers.podman_version, ["podman version 4.3.1\n"]),
    "/etc/subuid": (containers.ranges, ["ops:100000:65536\n2000:165536:65536\n"]),
    "mounts": (lambda text: containers.file_system(text, "/a"), ["overlay / overlay rw 0 0\nx /a ext4 rw 0 0\n"]),
    "a container's answer": (containers.read_answer, ["trainyard uid=2000\ntrainyard net=net:[1]\n"]),
    "nvidia-ctk --version": (container_toolkit.toolkit_version, ["NVIDIA Container Toolkit CLI version 1.17.8\n"]),
    "nvidia-ctk cdi list": (container_toolkit.listed_devices, ["level=info\nnvidia.com/gpu=0\nnvidia.com/gpu=all\n"]),
    "nccl-tests": (nccl_tests_output.parse, texts("nccl_tests_output/*.txt", "nccl_tests_output/*.json")),
    "pairs": (lambda text: pair_report.read([text]), texts("nccl_tests_output/trainyard-*.txt")),
    "lines of NCCL": (lambda text: nccl_lines.read_nccl_lines(text.splitlines()), texts("nccl_tests_output/*.txt")),
    "CUDA check": (lambda text: cuda_verify.read_run(0, text, 1), ['{"devices": 1, "sum": 3.0}\n', "no device\n"]),
    "cause of an end": (failures.root_cause, texts("torchrun/*.txt", "mpirun/*.txt", "mindspore/*.txt")),
    "progress": (
        lambda text: [progress.strict(progress.parse_line(line, PATTERN) or {}) for line in text.splitlines()],
        ["step 1/10 loss 0.5 rate 3\nepoch 2 step 3 accuracy 0.9\n", "step 7 loss nan\n"],
    ),
    "sacct": (slurm_state.from_sacct, SACCT),
    "scontrol show node": (slurm_health.read_node, texts("slurm/scontrol_show_node.txt")),
    "slurm.conf": (slurm_change.read_conf, texts("slurm/scontrol_show_config.txt")),
    "lldpctl": (switches.parse_neighbors, ['{"lldp": {"interface": {"eth0": {"chassis": {"leaf1": {}}}}}}']),
    "ibnetdiscover": (switches.parse_fabric, ["CA 4 1 0x2 4x FDR - SW 2 17 0x3 ( 'n1 mlx5_0' - 'leaf1' )\n"]),
    "topology.conf": (switch_tree.parse, ["SwitchName=a Nodes=n[1-2]\nSwitchName=b Switches=a LinkSpeed=1\n"]),
    "hostfile": (hostfile.parse, ["n1 slots=8\nn2 slots=8 max_slots=9\n# n3\n", "n1:2\nn1\n"]),
    "survey": (survey.read_probe, ["trainyard:python=3.11.2\nmotd\ntrainyard:sudo=yes\n"]),
    "ssh-keygen -L": (ssh_mesh.parse_certificates, [
        "(stdin):1:\n        Type: ssh-ed25519-cert-v01@openssh.com host certificate\n"
        "        Public key: ED25519-CERT SHA256:AAAA\n        Signing CA: ED25519 SHA256:BBBB (using ssh-ed25519)\n"
        "        Key ID: \"n1\"\n"
        "        Serial: 3\n        Valid: from 2026-01-01T00:00:00 to 2027-01-01T00:00:00\n"
        "        Principals: \n                n1\n        Critical Options: (none)\n"
    ]),
    "sshd -T": (sshd_settings.parse_sshd_settings, ["port 22\nallowusers a b\nallowusers c\n"]),
    "sessions": (session_environment.read_pieces, ['[{"name": "PATH"}]', "SetEnv A=b\n"]),
    "ip -j address": (
        identity.parse_addresses,
        ['[{"addr_info": [{"family": "inet", "local": "10.0.0.1", "scope": "global"}]}, {"ifname": "lo"}]'],
    ),
    "/proc/1/limits": (
        identity.parse_hard_limits,
        ["Max locked memory   8388608   8388608   bytes\nMax open files   1024   1048576   files\n"],
    ),
    "ulimit": (baseline_check.parse_ulimit, commands("ulimit")),
}  # fmt: skip


def test_numbers_beyond_all_bounds_in_the_json_of_nccl_tests():
    """Found by the test below: they are no numbers, and never as many ranks."""
    [text] = texts("nccl_tests_output/2.19-all_reduce-16-h100.json")
    assert nccl_tests_output.parse(text.replace('"time":', '"time":' + "9" * 400, 1)).rows
    many = re.sub(r'"ngpus":\s*[0-9]+', '"ngpus": 100000000', text)
    assert many != text and len(nccl_tests_output.parse(many).ranks) < 100_000


def test_a_byte_order_mark_before_the_json_of_nccl_tests():
    [text] = texts("nccl_tests_output/2.19-all_reduce-16-h100.json")
    assert nccl_tests_output.parse("\ufeff" + text) == nccl_tests_output.parse(text)


# Those that say so; all others read what they can.
MAY_REFUSE = (
    "saved accelerators",
    "saved networks",
    "ssh-keygen -L",
    "scontrol show node",
    "ip -j address",
    "/proc/1/limits",
    "ulimit",
    "lldpctl",
    "topology.conf",
)


@pytest.mark.parametrize("name", PARSERS)
@given(choose=st.randoms(use_true_random=False), times=st.integers(1, 3))
def test_a_mutated_text_is_read_or_refused(name, choose, times):
    parser, samples = PARSERS[name]
    text = choose.choice(samples)
    for _ in range(times):
        text = mutated(text, choose)
    try:
        found = parser(text)
    except ValueError:
        assert name in MAY_REFUSE
        return
    json.dumps(as_json(found), allow_nan=True)


@pytest.mark.parametrize("name", PARSERS)
def test_a_sample_is_read_as_it_is_unless_it_is_of_other_tools(name):
    """A sample that is refused before it is mutated tries nothing."""
    parser, samples = PARSERS[name]
    read = 0
    for text in samples:
        try:
            parser(text)
        except ValueError:
            assert name in MAY_REFUSE
        else:
            read += 1
    assert read


# Logs and files that somebody coloured, edited or copied elsewhere; what we ask ourselves comes without all that.
EDITED = (
    "nvidia-smi --query-gpu", "npu-smi info", "npu-smi info -m", "nvidia-smi topo -m", "nvidia-smi nvlink",
    "saved accelerators", "saved networks", "hccn.conf", "cause of an end", "progress",
)  # fmt: skip


@pytest.mark.parametrize("name", EDITED)
def test_colours_line_ends_and_a_byte_order_mark_change_nothing(name):
    parser, samples = PARSERS[name]

    def read(text):
        try:
            return repr(parser(text))
        except ValueError as error:
            return str(error)

    for text in samples:
        lines = text.splitlines()
        for other in (
            text.replace("\n", "\r\n"),
            "\ufeff" + text,
            "".join(f"{COLOUR}{line}\x1b[0m\n" for line in lines),
        ):
            assert read(other) == read(text)


class Mutated(Tree):
    """A captured machine of which some files and answers are mutated."""

    def __init__(self, root, choose):
        super().__init__(root)
        self._choose = choose

    def text(self, path, *most):
        found = super().text(path, *most)
        return mutated(found, self._choose) if found is not None and self._choose.random() < 0.2 else found


def job_facts(tree):
    return node_identity.read_node(tree, packages=["torch"], venv=None, user=None)


def verify_facts_of(tree):
    about = {"host": "n1", "root": "/opt/trainyard", "venvs": "/opt/trainyard/venvs", "user": "", "network": ""}
    return verify_facts.read_machine(tree, ascend_root="/usr/local/Ascend", host_address="10.0.0.1", **about)


def nvidia_facts(tree):
    return nvidia_host.read_host(tree)


@pytest.mark.parametrize("path", sorted(FIXTURES.glob("*/*.tree")), ids=lambda path: path.stem)
@settings(max_examples=4)
@given(choose=st.randoms(use_true_random=False))
def test_a_mutated_machine_is_read(path, choose, tmp_path_factory):
    """Facts for a job, for a verification, and of GPU software."""
    if path not in UNFOLDED:
        UNFOLDED[path] = unfold(path.stem, tmp_path_factory.mktemp("machine"), path.parent)
    for read in (job_facts, verify_facts_of, nvidia_facts):
        json.dumps(read(Mutated(str(UNFOLDED[path]), choose)), allow_nan=False)


UNFOLDED = {}
