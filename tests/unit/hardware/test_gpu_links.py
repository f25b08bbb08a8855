"""NVLinks as nvidia-smi prints them in published reports of V100, H100, B200 and A100 machines; GPUs that lost some."""

import pytest
from ansible.module_utils.trainyard.hardware.gpu_links import check_nvlinks, parse_nvlinks

# The V100 of Azure/azhpc-diagnostics#73, the B200 of leptonai/gpud#1085; UUIDs are invented.
V100 = """GPU 3: Tesla V100-SXM2-32GB (UUID: GPU-00000000-0000-0000-0000-000000000003)
\t Link 0: 25.781 GB/s
\t Link 1: 25.781 GB/s
\t Link 2: 25.781 GB/s
\t Link 3: <inactive>
\t Link 4: 25.781 GB/s
\t Link 5: <inactive>
"""
B200 = """GPU 2: NVIDIA B200 (UUID: GPU-00000000-0000-0000-0000-000000000002)
NVML: Unable to retrieve NVLink information as all links are inActive
"""


def gpu(index, active, links=6, model="Tesla V100-SXM2-32GB"):
    return {"index": index, "model": model, "links": links, "active": active}


def node(*gpus, nvlinks=True):
    return {"gpus": [{"model": each["model"]} for each in gpus], "nvlinks": list(gpus) if nvlinks else None}


def judge(**nodes):
    (check,) = check_nvlinks(nodes, {}, "-i hosts")
    return check


def test_links_are_counted_by_gpu():
    without = "GPU 0: Tesla T4 (UUID: GPU-00000000-0000-0000-0000-000000000000)\n"
    assert parse_nvlinks(without + B200 + V100) == [gpu(0, 0, 0, "Tesla T4"), gpu(2, 0, None, "NVIDIA B200"), gpu(3, 4)]
    assert parse_nvlinks("") == parse_nvlinks("Link 0: 25.781 GB/s\nNVML: Not Supported\n") == []


def test_a_gpu_with_fewer_links_than_most_of_its_model_is_named_on_whatever_node():
    check = judge(n1=node(gpu(0, 6), gpu(1, 6)), n2=node(gpu(0, 6), gpu(1, 4)))
    assert (check.state, check.hosts) == ("fail", ("n2",))
    assert check.found == "n2: GPU 1: 4 of 6 links active, most have 6"
    assert judge(n1=node(gpu(0, 6), gpu(1, 6))).found == "12 links are active"


def test_two_cards_under_one_bridge_use_some_of_their_links_and_are_well():
    for active in (4, 0):
        cards = [gpu(index, active, 12, "NVIDIA A100-PCIE-40GB") for index in (0, 1)]
        assert judge(n1=node(*cards)).state == "pass"


@pytest.mark.parametrize("model", ["Tesla V100-SXM2-32GB", "NVIDIA H100 80GB HBM3", "NVIDIA H200", "NVIDIA GB200"])
@pytest.mark.parametrize(("links", "of"), [(6, " of 6"), (None, "")])
def test_a_model_that_is_made_for_nvlink_and_uses_none_is_at_fault(model, links, of):
    check = judge(n1=node(gpu(0, 0, links, model), gpu(1, 0, links, model)))
    assert (check.state, check.found) == ("fail", f"n1: GPU 0: no link{of} active, GPU 1: no link{of} active")


def test_missing_output_about_gpus_is_unknown():
    """The beginning of the output may be cut: links without a GPU are ignored."""
    cut = node(gpu(0, 6), gpu(1, 6))
    cut["nvlinks"] = cut["nvlinks"][1:]
    check = judge(n1=cut, n2=node(gpu(0, 6), gpu(1, 6)))
    assert check.state == "unknown" and "n1: nvidia-smi nvlink shows nothing for 1 of 2 GPUs" in check.found
    assert judge(n1=node(gpu(0, 6), gpu(1, 6), nvlinks=False)).state == "unknown"


def test_a_model_that_is_made_for_nvlink_of_which_another_line_stands_there_is_unknown():
    """Composed: an error of the driver's in the place of the links."""
    said = "".join(f"GPU {index}: NVIDIA H200 (UUID: GPU-{index})\nNVML: Not Supported\n" for index in (0, 1))
    check = judge(n1=node(*parse_nvlinks(said)))
    assert (check.state, check.found) == ("unknown", "n1: nvidia-smi nvlink shows nothing for them")


def test_gpus_without_nvlinks_to_others_are_skipped():
    virtual_machine = node(gpu(0, 0))
    l40s = node(*(gpu(index, 0, 0, "NVIDIA L40S") for index in (0, 1)))
    t4 = node(*(gpu(index, 0, 0, "Tesla T4") for index in (0, 1)), nvlinks=False)
    assert [judge(n1=each).state for each in (virtual_machine, l40s, t4)] == ["skipped"] * 3
