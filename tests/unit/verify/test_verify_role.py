"""What the role verify makes of the checks of a phase, and of the hosts that answer: its variables, rendered."""

from __future__ import annotations

import json
from concurrent.futures import ProcessPoolExecutor
from itertools import combinations
from multiprocessing import get_context
from pathlib import Path

import pytest
from ansible.module_utils.trainyard.record.checks import STATES, outcomes, worst

PROJECT = Path(__file__).resolve().parents[3]
HOSTS = [f"n{number}" for number in range(1, 30)]


def rendered(name, given):
    """Render a variable of the role as the controller does, which a process is for good once it has imported this."""
    from ansible.parsing.dataloader import DataLoader
    from ansible.template import Templar

    loader = DataLoader()
    variables = loader.load_from_file(str(PROJECT / "roles/verify/vars/main.yml"), trusted_as_template=True)
    return json.dumps(Templar(loader, variables={**variables, **given}).template(variables[name]))


@pytest.fixture(scope="module")
def render():
    """Render a variable of the role, with those of its users, in another process: other tests are those of modules."""
    with ProcessPoolExecutor(1, mp_context=get_context("fork")) as process:
        yield lambda name, **given: json.loads(process.submit(rendered, name, given).result())


def phase(states, reasons=("why",)):
    reasons = [*reasons, *reasons[-1:] * len(states)]
    checks = [{"state": state, "reason": reason} for state, reason in zip(states, reasons)]
    return {"verify_phase": "drift", "verify_phase_checks": checks}


@pytest.mark.parametrize(
    "states", [states for number in range(len(STATES) + 1) for states in combinations(STATES, number)]
)
def test_a_phase_ends_with_the_words_that_the_report_has_for_it(render, states):
    assert render("__verify_state", **phase(states)) == worst(states)
    assert render("__verify_count", **phase(states)) == outcomes(states)


def test_a_phase_without_any_outcome_says_why(render):
    skipped = phase(["skipped"] * 3, ["no GPU", "no NPU", "no GPU"])
    assert render("__verify_reason", **skipped) == "no GPU; no NPU"
    assert render("__verify_reason", **phase(["skipped", "pass"])) == ""
    assert render("__verify_reason", **phase([]), verify_phase_skipped="one node") == "one node"
    assert render("__verify_said", **skipped) == "does not apply, no GPU; no NPU"
    assert render("__verify_said", **phase(["pass", "skipped"])) == "pass, 1 passed, 1 not applicable"
    assert render("__verify_said", **phase(["not_asked"])) == "not asked, 1 not asked for"


def test_hosts_stay_in_the_order_of_the_inventory(render):
    silent = {"n0": {"unreachable": True, "msg": "no route"}, "n00": {}}
    answers = {**silent, **{host: {"facts": {}} for host in HOSTS}}
    given = {
        "__verify_facts": {"answers": answers},
        "groups": {"nvidia": ["n0", *HOSTS], "rdma": HOSTS},
    }
    for name in ("__verify_answered", "__verify_nvidia_hosts", "__verify_rdma_hosts"):
        assert render(name, **given) == HOSTS
    asked = {
        "trainyard_frameworks": ["openmpi", "pytorch"],
        "trainyard_nvidia": ["nvidia_driver", "cuda_toolkit", "nccl"],
        "trainyard_manage_system": True,
    }
    roles = render("__verify_roles", **given, __verify_fresh=False, **asked)
    first = ["nvidia_stack", "nvidia_driver", "cuda_toolkit", "pytorch", "nccl", "rdma", "node_baseline", "openmpi"]
    assert (list(roles), roles["rdma"]) == (first, HOSTS)
