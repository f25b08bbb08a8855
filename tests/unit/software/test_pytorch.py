"""PyTorch: the packages of a request, and nodes with another build."""

import pytest
from ansible.module_utils.trainyard.software import pytorch


@pytest.mark.parametrize(
    ("settings", "pins"),
    [
        ({}, ["torch==2.13.0"]),
        # The wheel of torchvision 0.28.0 depends on torch 2.13.0.
        ({"torchvision": "auto"}, ["torch==2.13.0", "torchvision==0.28.0", "pillow==11.3.0"]),
        (
            {"version": "2.7.1", "build": "cu118", "torchvision": "auto"},
            ["torch==2.7.1+cu118", "torchvision==0.22.1+cu118", "pillow==11.3.0"],
        ),
        # The usual index has this build without naming it; other sources name it.
        ({"build": "cu130"}, ["torch==2.13.0"]),
        ({"build": "cu130", "sources": ["https://mirror.example.org/cu130"]}, ["torch==2.13.0+cu130"]),
        ({"build": "cpu"}, ["torch==2.13.0+cpu"]),
    ],
)
def test_the_packages_of_a_request(settings, pins):
    request = pytorch.Settings(**{"version": "2.13.0", **settings})
    assert list(pytorch.input_findings(request)) == []
    planned = pytorch.plan(request)
    assert planned["pins"] == pins
    assert ("torchvision" in planned["versions"]) == ("torchvision" in settings)


def test_a_release_that_is_not_known_needs_its_pythons():
    [finding] = pytorch.input_findings(pytorch.Settings("9.0.0"))
    assert finding.action == "set pytorch_python_min and pytorch_python_max"
    request = pytorch.Settings("9.0.0", python_min="3.13", python_max="3.15")
    assert list(pytorch.input_findings(request)) == [] and pytorch.plan(request)["python_max"] == "3.15"


@pytest.mark.parametrize("name", ["version", "build", "torchvision"])
def test_a_wrong_value_is_a_finding(name):
    request = pytorch.Settings(**{"version": "2.13.0", "python_min": "3.9", "python_max": "3.9", name: "new"})
    assert [finding.found for finding in pytorch.input_findings(request)] == [f"pytorch_{name} is 'new'"]


def offer(**given):
    nothing = {"accelerators": False, "usual": False, "asks_index": False, "interpreter": "", "python": ""}
    return {**nothing, **given}


CPU = offer(interpreter="/usr/bin/python3.11", python="3.11")


@pytest.mark.parametrize(
    ("others", "build", "note"),
    [
        ({}, "cpu", ""),
        ({"n2": CPU}, "cpu", ""),
        # All nodes get one build: that of the host with a GPU, or the one that is there.
        ({"n2": offer(accelerators=True)}, "", ""),
        ({"n2": offer(usual=True)}, "", ""),
        ({"n2": offer(), "n3": offer()}, "", "on n1, n2, n3, as pip on n2, n3 finds no CPU build of it"),
    ],
)
def test_one_build_is_chosen_for_all_hosts(others, build, note):
    chosen = pytorch.choose({"n1": CPU, **others})
    assert chosen["build"] == build and note in chosen["note"] and bool(note) == bool(chosen["note"])
    hosts = ["n1", *others] if build else []
    assert chosen["interpreters"] == dict.fromkeys(hosts, "/usr/bin/python3.11")


def test_without_a_host_the_usual_build_is_chosen():
    assert pytorch.choose({}) == {"build": "", "interpreters": {}, "note": ""}
