"""The role nvidia_stack on real hosts without a GPU: they declare that, or every problem is a finding."""

import json
import platform
import re

HEADLINE = "The NVIDIA stack does not fit these hosts:"


def test_nvidia_host_reads_a_real_host(host):
    """It agrees with the host's tools, and reads the same in check mode."""
    found = host.ansible("nvidia_driver", "step=host", check=False, become=True)["nvidia_host"]
    assert (found["os"], found["arch"]) == ({"id": "debian", "version": "12", "family": "debian"}, platform.machine())
    assert found["kernel"]["running"] == host.check_output("uname -r")
    assert (found["gpus"], found["nvswitches"], found["nouveau"], found["virtual"]) == ([], 0, False, "podman")
    for folder in ("/", "/var"):
        free = int(host.check_output(f"df --output=avail -BM {folder} | tail -n 1").strip(" M"))
        assert abs(found["free_mib"][folder] - free) < 1000
    again = host.ansible("nvidia_driver", "step=host", check=True, become=True)["nvidia_host"]
    assert {**again, "free_mib": {}} == {**found, "free_mib": {}}


def test_held_and_interrupted_packages_are_seen(node, node_names):
    host = node(node_names[0])
    host.check_output("sudo apt-mark hold adduser")
    status = "sudo sed -i '/^Package: sudo$/,/^$/s/^Status: install ok .*/Status: install ok {}/' /var/lib/dpkg/status"
    host.check_output(status.format("half-configured"))
    try:
        found = host.ansible("nvidia_driver", "step=host", check=False, become=True)["nvidia_host"]
    finally:
        host.check_output(status.format("installed"))
        host.check_output("sudo apt-mark unhold adduser")
    assert "adduser" in found["apt"]["held"]
    assert found["apt"]["broken"] == ["sudo (half-configured)"]


def by_host(first, others):
    """Return a variable that differs between the first node and the others."""
    return f"{{{{ {first!r} if inventory_hostname == 'n1' else {others!r} }}}}"


def test_roles_take_their_defaults_from_the_stack_of_each_host(run_playbook, node_names):
    """A node that is declared to have no GPU is no finding."""
    run = run_playbook("chosen.yml", nvidia_stack=by_host("v100-runfile", "mindspore-cuda11.1"), nvidia_gpus=0).expect(
        0, "none, as declared", "fits", "n1: openmpi distro '' pytorch 2.7.1 'cu118' mindspore 2.10.0 cpu ''"
    )
    for name in node_names[1:]:
        assert f"{name}: openmpi source '4.0.3' pytorch 2.13.0 'auto' mindspore 1.10.0 gpu '11.1'" in run.text
    assert set(run.changes.values()) == {0}


def test_overrides_and_own_stacks_reach_the_choice(run_playbook):
    own = {"site": {"for": "ours", "set": {"driver": {"provider": "none"}, "nccl": {"provider": "none"}}}}
    overrides = {"driver": {"version": "580.126.09"}, "openmpi": {"provider": "source", "version": "4.1.8"}}
    run = run_playbook(
        "chosen.yml",
        "--check",
        nvidia_stack=by_host("pytorch-cuda12", "site"),
        nvidia_stack_own=own,
        nvidia_stack_overrides=by_host(overrides, {}),
        nvidia_gpus=0,
    ).expect(0, "openmpi source '4.1.8' pytorch 2.13.0 'cu126'")
    # The nodes answer in any order.
    chosen = dict(re.findall(r"(n\d+): openmpi .*?'' (\{\"\S+\": \{.*?\}\})", run.text))
    assert json.loads(chosen["n1"])["driver"] == {
        "branch": "580",
        "flavour": "open",
        "provider": "network_repo",
        "version": "580.126.09",
    }
    assert json.loads(chosen["n2"]) == own["site"]["set"]


def test_all_findings_of_all_hosts_are_reported_at_once(run_playbook):
    given = {
        "nvidia_stack": by_host("debian13", "debian12"),
        "nvidia_gpus": by_host(0, "auto"),
        "nvidia_stack_overrides": by_host({}, {"driver": {"flavor": "open"}}),
    }
    run_playbook("converge.yml", "--limit", "n1,n2", **given).fails(
        f"{HEADLINE} 4 findings. Nothing was changed. 1. operating system on n1 found CUDA 12.4 from debian 12",
        "found debian13 does not fit, see above expected a stack that fits this host: v100-runfile,",
        "nvidia_stack_overrides on n2 found driver.flavor expected a field of driver: provider, version, branch",
    ).changes_nothing()
