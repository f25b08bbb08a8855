"""An upgrade of the driver over many nodes: the order, what a node's proof makes of it, and the way back."""

from __future__ import annotations

import pytest
from ansible.module_utils.trainyard.nvidia import upgrade
from ansible.module_utils.trainyard.software.apt import Offer
from ansible.module_utils.trainyard_node.nvidia import driver_apt
from driver_upgrades import NEW, OLD, RUNFILE, SETTINGS, TARGET, driver, entry, four, node, planned, settled, states
from filters import FILTERS
from hypothesis import given
from hypothesis import strategies as st


def test_nodes_of_kubernetes_are_to_be_cordoned_first():
    nodes = four(n2={"kubernetes": True}, n3={"kubernetes": True, "uses": ["python3 (process 20)"]})
    found = planned(nodes)
    (finding,) = found["findings"]
    assert (finding["check"], finding["host"], found["batches"]) == ("Kubernetes", "n2", [])
    assert planned(nodes, cordoned=True)["findings"] == []
    # What has the new driver is not touched.
    assert planned([node("n1", NEW, kubernetes=True), node("n2")])["findings"] == []


@pytest.mark.parametrize(
    ("settings", "batches"),
    [
        ({}, [["n1"], ["n2"], ["n3"], ["n4"]]),
        ({"serial": 2}, [["n1"], ["n2", "n3"], ["n4"]]),
        ({"serial": "50%"}, [["n1"], ["n2", "n3"], ["n4"]]),
        ({"serial": "1%"}, [["n1"], ["n2"], ["n3"], ["n4"]]),
        ({"canary": ["n4", "n2"], "serial": 9}, [["n4", "n2"], ["n1", "n3"]]),
    ],
)
def test_a_canary_goes_first_and_the_others_in_batches(settings, batches):
    found = planned(four(), **settings)
    assert (found["findings"], found["batches"]) == ([], batches)
    assert set(states(found).values()) == {"waiting"}


def test_nodes_in_use_are_left_out_or_waited_for():
    nodes = four(n1={"uses": ["job digits-1"]}, n3={"uses": ["python3 (process 7)", "job 12 of Slurm"]})
    found = planned(nodes, serial=4)
    assert found["batches"] == [["n2"], ["n4"]]
    assert found["table"]["n3"]["why"] == "python3 (process 7), job 12 of Slurm"
    assert states(found) == {"n1": "in use", "n2": "waiting", "n3": "in use", "n4": "waiting"}
    assert planned(nodes, serial=4, busy="wait")["batches"] == [["n1"], ["n2", "n3", "n4"]]


def test_the_next_run_goes_on_where_the_one_before_ended():
    nodes = four(n1={"version": NEW})
    found = planned(nodes, {"n1": entry("upgraded")}, serial=4)
    assert found["batches"] == [["n2", "n3", "n4"]], "after one that was verified all others may go"
    assert states(found)["n1"] == "upgraded"
    # A node with a broken new driver is upgraded again.
    broken = node(version=NEW, driver=driver(version=NEW, userspace=OLD))
    assert [planned([each])["batches"] for each in (broken, node(version=NEW))] == [[["n1"]], []]


@pytest.mark.parametrize("state", upgrade.UNDONE)
def test_what_did_not_end_well_goes_first_and_alone(state):
    nodes = four(n1={"version": NEW})
    kept = {"n1": entry("upgraded"), "n3": entry(state, why="cut off")}
    assert planned(nodes, kept, serial=4)["batches"] == [["n3"], ["n2", "n4"]]
    # It cannot be tried: then the others do not all go at once either.
    nodes[2]["uses"] = ["job a"]
    found = planned(nodes, kept, serial=4)
    assert found["batches"] == [["n2"], ["n4"]]
    assert states(found)["n3"] == state


def test_an_interrupted_run_leaves_what_the_node_had_and_another_target_forgets_it():
    before = upgrade.previous(driver(version="535.1.1"))
    kept = {"n1": entry("installing", before=before)}
    assert planned([node()], kept)["table"]["n1"]["before"] == before
    other = {"n1": {**entry("installing", before=before), "target": {**TARGET, "version": "560.35.03"}}}
    assert planned([node()], other)["table"]["n1"] == {"state": "waiting", "why": "", "target": TARGET}
    # The restored driver counts as the present one.
    assert "before" not in planned([node()], {"n1": entry("rolled back", before=before)})["table"]["n1"]


def test_nodes_without_a_gpu_have_no_part_in_it():
    nodes = four(n2={"plan": {"action": "skip", "step": ""}})
    found = planned(nodes, serial=4)
    assert (states(found)["n2"], found["batches"]) == ("left out", [["n1"], ["n3", "n4"]])
    (finding,) = planned(nodes, canary=["n2"])["findings"]
    assert finding["found"] == "a node that is declared to have no GPU"


HOSTS = st.lists(st.integers(1, 30).map("n{}".format), unique=True, min_size=1, max_size=12)
KEPT = st.sampled_from(["none", "waiting", "upgraded", "in use", *upgrade.UNDONE])


@given(HOSTS, st.data())
def test_every_node_stands_in_the_table_and_in_one_batch_at_most(hosts, data):
    done = data.draw(st.sets(st.sampled_from(hosts)))
    used = data.draw(st.sets(st.sampled_from(hosts)))
    serial = data.draw(st.one_of(st.integers(1, 40), st.integers(1, 100).map("{}%".format)))
    canary = data.draw(st.lists(st.sampled_from(hosts), unique=True, max_size=2))
    busy = data.draw(st.sampled_from(["skip", "wait"]))
    kept = {host: entry(state) for host in hosts if (state := data.draw(KEPT)) != "none"}
    nodes = [node(host, NEW if host in done else OLD, uses=["job a"] if host in used else []) for host in hosts]
    found = planned(nodes, kept, serial=serial, canary=canary, busy=busy)
    flat = [host for batch in found["batches"] for host in batch]
    assert set(found["table"]) == set(hosts)
    assert len(flat) == len(set(flat)) and all(found["batches"])
    assert all(found["table"][host]["state"] not in ("upgraded", "in use") or busy == "wait" for host in flat)
    if found["findings"]:
        assert flat == []
        return
    # Nobody is forgotten: who is in no batch has it, or is in use.
    for host in set(hosts) - set(flat):
        assert found["table"][host]["state"] == "upgraded" or (host in used and busy == "skip")
    size = upgrade.batch_size(serial, len(flat)) or 0
    assert all(len(batch) <= size for batch in found["batches"][1:])
    verified = "upgraded" in states(found).values() and not set(states(found).values()) & set(upgrade.UNDONE)
    if found["batches"] and not verified:
        assert len(found["batches"][0]) <= max(1, len(canary)), "nothing is verified: no batch before a canary"
    assert upgrade.table_text(found["table"], found["batches"]).count("\n") == len(hosts) + 1


@given(st.one_of(st.text(max_size=8), st.integers(), st.booleans(), st.none(), st.floats()), st.integers(0, 5000))
def test_a_batch_has_a_node_at_least_or_is_refused(serial, nodes):
    size = upgrade.batch_size(serial, nodes)
    assert size is None or size >= 1


FAILED_CHECK = [{"name": "GPUs", "state": "fail", "hosts": ["n1", "n2"], "found": "n1: 7 of 8"}]
FROM_RUNFILE = driver(version="470.103.01", provider="runfile", packages={}, runfile="470.103.01")


@pytest.mark.parametrize(
    ("nodes", "settings", "check", "found"),
    [
        ([node()], {"canary": ["n9"]}, "nvidia_driver_upgrade_canary", "n9"),
        ([node()], {"serial": 0}, "nvidia_driver_upgrade_serial", "0"),
        ([node()], {"serial": "half"}, "nvidia_driver_upgrade_serial", "'half'"),
        ([node()], {"serial": "200%"}, "nvidia_driver_upgrade_serial", "'200%'"),
        ([node(settings={**SETTINGS, "version": ""})], {}, "nvidia_driver_version", "none"),
        ([node(settings={**SETTINGS, "version": "", "branch": "550"})], {}, "nvidia_driver_version", "branch 550"),
        ([node(settings={**SETTINGS, "provider": "none"})], {}, "nvidia_driver_provider", "none"),
        ([node(uses=["job a"])], {}, "in use", "job a"),
        ([node(), node("n2", uses=["job a"])], {"canary": ["n2"]}, "in use", "job a"),
        ([node(missing=["nvidia-smi 550.54.15-1"])], {}, "way back", "nvidia-smi 550.54.15-1"),
        ([node(driver=FROM_RUNFILE)], {}, "way back", "driver 470.103.01 from a runfile without a known address"),
        ([node()], {"runfiles": [{**RUNFILE, "url": "https://b"}]}, "nvidia_driver_upgrade_runfiles", "https://b"),
        ([node()], {"checks": FAILED_CHECK}, "devices", "GPUs: n1: 7 of 8"),
    ],
)
def test_bad_input_is_a_finding_and_nothing_is_planned(nodes, settings, check, found):
    made = planned(nodes, **settings)
    ((one, text),) = [(each["check"], each["found"]) for each in made["findings"]]
    assert one == check and found in text and made["batches"] == []


def test_old_packages_that_no_package_list_offers(monkeypatch):
    versions = {"nvidia-smi": ["550.54.150-1", "550.54.15-1"], "libcuda1": ["550.54.15-2"]}
    offers = {name: [Offer(version, "http://a", "", "") for version in each] for name, each in versions.items()}
    monkeypatch.setattr(driver_apt, "read_offers", lambda names: (offers, {}))
    before = dict.fromkeys(("nvidia-smi", "libcuda1", "nvidia-modprobe"), "550.54.15-1")
    assert driver_apt.missing(before) == ["libcuda1 550.54.15-1", "nvidia-modprobe 550.54.15-1"]
    # The user may accept that, and a node without a driver needs none.
    assert planned([node(missing=["nvidia-smi 1"])], without_way_back=True)["batches"] == [["n1"]]
    assert planned([node(driver=driver(provider="none", version="", packages={}, loaded=""))])["batches"] == [["n1"]]


def test_a_node_is_upgraded_waits_for_its_reboot_or_goes_back():
    assert settled(driver(version=NEW)) == {"state": "upgraded", "why": "", "back": {}}
    due = driver(version=NEW, loaded=OLD, reboot_due=[f"module {OLD} is loaded, {NEW} is installed"])
    found = settled(due, reboots=False)
    assert (found["state"], found["why"]) == ("reboot due", f"module {OLD} is loaded, {NEW} is installed")
    assert settled(due)["state"] == "going back"


@pytest.mark.parametrize(
    ("changes", "options", "why"),
    [
        ({}, {"failure": "apt-get ended with 100\n  twice"}, "apt-get ended with 100 twice"),
        ({}, {"checks": FAILED_CHECK}, "GPUs: n1: 7 of 8"),
        ({"userspace": OLD}, {}, f"user space: {OLD}"),
    ],
)
def test_a_node_that_fails_goes_back(changes, options, why):
    found = settled(driver(version=NEW, **changes), **options)
    assert (found["state"], found["why"]) == ("going back", why)
    assert found["back"]["packages"] == driver()["packages"]
    back = {"provider": "network_repo", "remove": "", "runfile": {}, "held": ["nvidia-kernel-dkms"]}
    assert {name: found["back"][name] for name in back} == back


def test_findings_about_another_node_of_the_batch_do_not_count():
    for host, state, why in (("n1", "going back", "It stops"), ("n2", "upgraded", f"driver: {OLD}")):
        stopped = {"failure": "It stops", "findings": [{"host": host, "check": "package", "found": "none"}]}
        assert settled(driver(version=NEW), **stopped)["state"] == state
        assert why in settled(driver(), **stopped)["why"]


def test_failed_checks_of_devices_that_do_not_stop_an_upgrade():
    """Nodes without a GPU, and nodes whose driver was upgraded already."""
    judged = {**node()["expected"], "gpus": False}
    assert settled(driver(version=NEW), checks=FAILED_CHECK, expected=judged)["state"] == "upgraded"
    assert planned([node(expected=judged)], checks=FAILED_CHECK)["findings"] == []
    kept = {"n1": entry("reboot due", before=upgrade.previous(driver()))}
    # It was rebooted by hand: all but the device is as it should be.
    found = planned([node(version=NEW)], kept, checks=FAILED_CHECK)
    assert (found["findings"], found["batches"]) == ([], [["n1"]])
    assert planned([node(version=NEW)], kept)["table"]["n1"]["state"] == "upgraded"


def test_the_table_steers_no_terminal():
    table = {"n1": entry("in use", why="\x1b]52;c;cm0gLXJm\x07 (process 7)\nn2 upgraded")}
    assert "\\x1b]52;c;cm0gLXJm\\x07 (process 7) n2 upgraded\n" in upgrade.table_text(table)


def test_of_a_large_cluster_a_batch_has_its_lines_and_all_are_counted():
    table = {f"n{number}": entry("waiting") for number in range(1000)} | {"n7": entry("upgraded")}
    lines = upgrade.table_text(table, [["n8"], ["n7", "n9"]], ["n7", "n9"]).splitlines()
    assert [line.split()[:2] for line in lines[1:-1]] == [["n7", "2"], ["n9", "2"]]
    assert lines[-1] == "1000 nodes: 999 waiting, 1 upgraded"


def test_back_to_a_runfile_or_to_no_driver():
    before = upgrade.previous({**FROM_RUNFILE, "flavour": ""})
    settings = {**SETTINGS, "flavour": "proprietary"}
    found = settled(driver(version=NEW), failure="no", before=before, runfiles=[RUNFILE], settings=settings)
    assert found["back"]["remove"] == "network_repo"
    arguments = ["--silent", "--no-questions", "--no-x-check", "--dkms", "--no-opengl-files"]
    assert found["back"]["runfile"] == {**RUNFILE, "url": "", "arguments": arguments}
    # The old driver was never removed.
    assert settled(FROM_RUNFILE, failure="no", before=before, runfiles=[RUNFILE])["back"]["runfile"] == {}
    before = upgrade.previous(driver(version="", provider="none", packages={}))
    assert settled(driver(version=NEW), failure="no", before=before)["back"]["remove"] == "network_repo"


def returned(now, **given):
    made = {"before": upgrade.previous(driver()), "driver": now, "why": "it failed", "failure": "", **given}
    return FILTERS["nvidia_upgrade_returned"](made)


def test_a_node_that_has_what_it_had_is_rolled_back():
    assert returned(driver()) == {"state": "rolled back", "why": "it failed"}
    due = returned(driver(reboot_due=["module is loaded"]))
    assert due["state"] == "rolled back" and "reboot due: module is loaded" in due["why"]


@pytest.mark.parametrize(
    ("now", "said"),
    [
        (driver(version=NEW), f"nvidia-kernel-dkms {NEW}-1, had {OLD}-1, nvidia-smi {NEW}-1, had {OLD}-1"),
        (driver(packages={"nvidia-kernel-dkms": f"{OLD}-1"}), f"nvidia-smi is missing, had {OLD}-1"),
        (driver(packages={**driver()["packages"], "libcuda1": "1"}), "libcuda1 is new"),
        (driver(broken=["nvidia-smi"]), "nvidia-smi is half installed"),
        (driver(runfile=NEW), f"runfile {NEW}, had none"),
    ],
)
def test_a_node_that_does_not_have_what_it_had_needs_somebody(now, said):
    found = returned(now, failure="apt-get\nended with 100")
    assert found["state"] == "failed"
    assert found["why"] == f"it failed; the rollback failed: apt-get ended with 100; {said}"


def test_a_batch_that_is_not_all_upgraded_stops_the_rest():
    entries = {"n1": entry("upgraded"), "n2": entry("rolled back", why="user space"), "n3": entry("rebooting")}
    found = FILTERS["nvidia_upgrade_findings"](entries)
    assert [(each["host"], each["check"]) for each in found] == [("n2", "rolled back"), ("n3", "rebooting")]


def test_installers_for_the_way_back_travel_in_a_bundle():
    away = {"version": "535.1.2", "url": "https://d.example.org/old.run", "sha256": 64 * "b"}
    assert upgrade.sources([RUNFILE, away]) == [
        {"what": "NVIDIA driver 470.103.01", "url": "", "local_file": RUNFILE["file"], "sha256": RUNFILE["sha256"]},
        {"what": "NVIDIA driver 535.1.2", "url": away["url"], "local_file": "", "sha256": away["sha256"]},
    ]
    files = {away["sha256"]: "/media/b/files/old.run", RUNFILE["sha256"]: "/media/b/files/NVIDIA-470.run"}
    found = FILTERS["bundle_files"]([RUNFILE, away], {"files": files}, key="file")
    assert found == [RUNFILE, {**away, "url": "", "file": files[away["sha256"]]}]
