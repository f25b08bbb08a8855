"""`nvidia-smi topo -m`: what joins GPUs and network devices, and what a damaged table does not say."""

from __future__ import annotations

from pathlib import Path

import pytest
from ansible.module_utils.trainyard.hardware.nvidia_topology import parse_topology
from hypothesis import given
from hypothesis import strategies as st

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures" / "nvidia_topology"
TABLES = {path.stem: path.read_text() for path in FIXTURES.glob("*.txt")}
WHOLE = [name for name in TABLES if name != "rtx4090_8_no_legend"]


def test_gpus_nics_and_the_ways_between_them():
    found = parse_topology(TABLES["v100_4_nics_2"])
    assert (found["gpus"], found["nics"], found["problems"]) == ([0, 1, 2, 3], ["mlx5_0", "mlx5_1"], [])
    assert found["links"]["GPU2"] == {"GPU0": "NV2", "GPU1": "NV2", "GPU3": "NV2", "mlx5_0": "SYS", "mlx5_1": "PIX"}
    assert found["links"]["mlx5_1"]["GPU3"] == "PIX"
    assert found["cpus"] == {"GPU0": "0-23", "GPU1": "0-23", "GPU2": "24-47", "GPU3": "24-47"}
    assert found["numa"] == {"GPU0": "0", "GPU1": "0", "GPU2": "1", "GPU3": "1"}


def test_a_head_without_affinities_and_one_with_the_names_of_network_devices():
    found = parse_topology(TABLES["v100_8"])
    assert found["problems"] == [] and found["cpus"] == {}
    assert sum(way.startswith("NV") for way in found["links"]["GPU7"].values()) == 4
    found = parse_topology(TABLES["p100_8_mlx4"])
    assert (found["problems"], found["nics"], found["numa"]) == ([], ["mlx4_0"], {})
    assert found["links"]["GPU4"]["mlx4_0"] == "SYS" and found["cpus"]["GPU4"] == "10-19,30-39"
    # Network devices without their legend are not guessed.
    found = parse_topology(TABLES["rtx4090_8_no_legend"])
    assert found["problems"] == ["nvidia-smi topo -m: no NIC legend for NIC0, NIC1; they are dropped"]
    assert found["nics"] == [] and found["gpus"] == list(range(8)) and set(found["links"]["GPU6"].values()) == {"SYS"}


@pytest.mark.parametrize("name", WHOLE)
def test_the_same_with_a_prompt_spaces_and_other_line_ends(name):
    text = TABLES[name]
    spaced = text.replace("\x1b[4m", "").replace("\x1b[0m", "").replace("\t", "    ").replace("\n", "\r\n")
    assert parse_topology("\ufeffroot@n1:~# nvidia-smi topo -m\r\n" + spaced) == parse_topology(text)


@pytest.mark.parametrize("name", WHOLE)
@given(data=st.data())
def test_of_a_table_cut_at_its_begin_or_end_nothing_is_made_up(name, data):
    whole, text = parse_topology(TABLES[name]), TABLES[name]
    # The legend of words is no part of the table, and says nothing that can be missed.
    end = text.index("Legend:") - 3
    at = data.draw(st.integers(0, end))
    for part in (text[at:], text[:at]):
        found = parse_topology(part)
        assert found["problems"] or found == whole or (part == text[at:] and text[:at].strip("\t\x1b[4m ") == "")
        for device, ways in found["links"].items():
            assert ways.items() <= whole["links"][device].items()
        for gpu, cpus in found["cpus"].items():
            assert whole["cpus"][gpu].startswith(cpus)


@given(row=st.sampled_from(["GPU0", "GPU1", "GPU2", "GPU3", "NIC0", "NIC1"]))
def test_a_row_that_is_missing_stands_twice_or_is_another_one_is_said(row):
    lines = TABLES["v100_4_nics_2"].splitlines(keepends=True)
    at = next(number for number, line in enumerate(lines) if line.startswith(row))
    [problem] = parse_topology("".join(lines[:at] + lines[at + 1 :]))["problems"]
    assert f"no complete row of {row};" in problem
    (problem,) = parse_topology("".join(lines[: at + 1] + lines[at:]))["problems"]
    assert f"lists {row} twice" in problem


def test_columns_that_ran_together_are_no_columns():
    """As users paste them: `NIC8NIC9` in the head, `NODENODE` in rows."""
    glued = TABLES["v100_4_nics_2"].replace("NIC0\tNIC1", "NIC0NIC1", 1)
    assert parse_topology(glued)["problems"][-1].startswith("nvidia-smi topo -m printed no table")
    glued = TABLES["v100_4_nics_2"].replace("PIX\tSYS\t0-23", "PIXSYS\t0-23", 1)
    assert "no complete row of GPU0;" in parse_topology(glued)["problems"][0]


def test_ways_that_differ_from_their_way_back_and_words_of_other_tables():
    other = TABLES["v100_8"].replace("NV1", "PHB", 1)
    assert "GPU0 to GPU1 is PHB, and back NV1" in parse_topology(other)["problems"][0]
    peer = " \tGPU0\tGPU1\t\n GPU0\tX\tGNS\t\n GPU1\tGNS\tX\t\n"  # nvidia-smi topo -p2p r
    assert "no complete row of GPU0, GPU1;" in parse_topology(peer)["problems"][0]


def test_affinities_of_which_one_is_missing_are_not_taken_for_another():
    """GB200 lists NUMA nodes of memory; and a table of which tabs became one space."""
    table = "\tGPU0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\nGPU0\t X \t{}\n"
    assert parse_topology(table.format("0-71\t0,3-9,11-17\t\t2"))["numa"] == {"GPU0": "0,3-9,11-17"}
    assert parse_topology(table.format("0-31,64-950   N/A"))["cpus"] == {}
    assert parse_topology(table.format("\t\t\tN/A"))["cpus"] == {}
