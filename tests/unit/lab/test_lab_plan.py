"""The lab's plan: addresses, names, and what of pip's configuration reaches the nodes."""

import importlib.util
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parents[3] / "molecule/default/lab_plan.py"
spec = importlib.util.spec_from_file_location("lab_plan", SOURCE)
lab_plan = importlib.util.module_from_spec(spec)
spec.loader.exec_module(lab_plan)

LISTING = """\
:env:.find-links='/srv/wheels'
:env:.cert='/etc/ssl/certs/site.crt'
global.extra-index-url='file:///srv/pypi/simple https://mirror.example/simple'
global.find-links='/from/a/file'
global.timeout='3'
install.user='true'
"""


def test_nodes_follow_from_address_11():
    plan = lab_plan.plan_nodes("ring", 2, "10.5.0.0/24")
    assert plan["gateway"] == "10.5.0.1"
    assert plan["nodes"] == [
        {"name": "n1", "container": "ring-n1", "address": "10.5.0.11", "mac": "02:00:0a:05:00:0b"},
        {"name": "n2", "container": "ring-n2", "address": "10.5.0.12", "mac": "02:00:0a:05:00:0c"},
    ]


@pytest.mark.parametrize(
    ("lab", "count", "subnet", "finding"),
    [
        ("ring", 0, "10.5.0.0/24", "NODES=0: 10.5.0.0/24 has room for 1 to 244 nodes"),
        ("ring", 6, "10.5.0.0/28", "NODES=6: 10.5.0.0/28 has room for 1 to 4 nodes"),
        ("../etc", 2, "10.5.0.0/24", "LAB=../etc: expected a lower-case name"),
        ("ring", 2, "10.5.0.1/24", "has host bits set"),
    ],
)
def test_a_wish_that_cannot_be_met_is_explained(lab, count, subnet, finding):
    with pytest.raises(ValueError, match=finding.replace("[", r"\[")):
        lab_plan.plan_nodes(lab, count, subnet)


def test_the_last_node_that_fits_is_below_the_broadcast_address():
    assert lab_plan.plan_nodes("ring", 244, "10.5.0.0/24")["nodes"][-1]["address"] == "10.5.0.254"


def test_pip_settings_of_the_environment_win_and_certificates_stay_behind():
    settings = lab_plan.read_pip_settings(LISTING)
    assert settings == {
        "extra-index-url": ["file:///srv/pypi/simple", "https://mirror.example/simple"],
        "find-links": ["/srv/wheels"],
    }


def test_local_folders_are_mounted_an_index_with_its_parent():
    assert lab_plan.local_folders(lab_plan.read_pip_settings(LISTING)) == ["/srv/pypi", "/srv/wheels"]


def test_pip_conf_of_a_node():
    assert lab_plan.pip_conf({"find-links": ["/a", "/b"], "default-timeout": ["9"]}) == (
        "[global]\ncert = /etc/ssl/certs/ca-certificates.crt\nfind-links = /a /b\ntimeout = 9\n"
    )
