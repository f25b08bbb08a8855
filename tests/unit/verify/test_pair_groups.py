"""Groups of near nodes are found by what pairs measured and used: 200 clusters with groups, 200 flat, 1,000 by name."""

from __future__ import annotations

import math
import os
import random

import pytest
from ansible.module_utils.trainyard.cluster.switches import ordered
from ansible.module_utils.trainyard.verify import pair_groups, pairing, report, stragglers
from ansible.module_utils.trainyard_controller.runs.pages import verify_page
from report_samples import phase, reported

CLUSTERS = 1000 if os.environ.get("TRAINYARD_TESTS") == "all" else 200


def measured(chance, truth, noise, apart):
    """Latencies of pairs of nodes by their groups: some were not measured, some disturbed, some nodes a bit slower.

    Each node has an undisturbed pair in its group: without one, nothing says where it is.
    """
    own = [chance.gauss(0, chance.choice((0, 0, noise / 2))) for _ in truth]
    missing, disturbed = chance.choice((0, 0.1)), chance.choice((0, 0.01, 0.02))
    records, sound = [], set()
    for first in range(len(truth)):
        for second in range(first + 1, len(truth)):
            is_sound = truth[first] == truth[second] and not {first, second} <= sound
            if is_sound:
                sound |= {first, second}
            elif chance.random() < missing:
                continue
            distance = own[first] + own[second] + chance.gauss(0, noise)
            distance += apart if truth[first] != truth[second] else 0
            distance += chance.uniform(0.5, 3) if chance.random() < disturbed and not is_sound else 0
            records.append({"hosts": [f"n{second}", f"n{first}"], "latency_us": 20 * math.exp(distance)})
    return records


def groups(names, records):
    found = pair_groups.topology(names, records)
    return found and [switch["hosts"] for switch in found["switches"]]


def ring_time(names, switch_of):
    """The time of a step of a ring all-reduce: all ranks send at once, and those to other switches share an uplink."""
    leaving = {}
    for host, following in zip(names, [*names[1:], names[0]]):
        if switch_of[host] != switch_of[following]:
            leaving[switch_of[host]] = leaving.get(switch_of[host], 0) + 1
    return max(leaving.values())


def test_all_groups_are_recovered_and_a_ring_in_their_order_is_faster():
    alike = 0
    for seed in range(CLUSTERS):
        chance = random.Random(seed)  # noqa: S311
        truth = [group for group in range(chance.randint(2, 6)) for _ in range(chance.randint(4, 10))]
        chance.shuffle(truth)
        names = [f"n{at}" for at in range(len(truth))]
        noise = chance.uniform(0.01, 0.15)
        found = pair_groups.topology(names, measured(chance, truth, noise, max(0.22, noise * chance.uniform(8, 14))))
        switch_of = dict(zip(names, truth))
        expected = {}
        for name in names:
            expected.setdefault(switch_of[name], []).append(name)
        assert [switch["hosts"] for switch in found["switches"]] == list(expected.values()), seed
        assert ordered(names, found) == [name for group in expected.values() for name in group]
        times = ring_time(ordered(names, found), switch_of), ring_time(names, switch_of)
        assert times[0] < times[1] or times == (1, 1), seed
        alike += times == (1, 1)
    # By chance the nodes of two small switches may follow one another anyway.
    assert alike <= 3


def test_no_group_is_found_in_flat_clusters():
    for seed in range(CLUSTERS):
        chance = random.Random(seed)  # noqa: S311
        names = [f"n{at}" for at in range(chance.randint(4, 40))]
        records = measured(chance, [0] * len(names), chance.uniform(0.003, 0.3), 0)
        # Slow nodes are no switch of their own.
        slow = set(chance.sample(names, chance.choice((0, 0, 1, 2))))
        for record in records:
            record["latency_us"] *= 2 ** len(slow.intersection(record["hosts"]))
        assert not groups(names, records), seed


@pytest.mark.parametrize(("rounds", "shows"), [(2, False), (8, True)])
def test_groups_need_as_many_pairs_as_show_them(rounds, shows):
    names = [f"n{at}" for at in range(24)]
    pairs = [pair for each in pairing.first_rounds(names, rounds) for pair in each]
    group = {name: at // 8 for at, name in enumerate(names)}
    records = [{"hosts": list(pair), "busbw": 10 if group[pair[0]] == group[pair[1]] else 4} for pair in pairs]
    assert groups(names, records) == ([names[:8], names[8:16], names[16:]] if shows else None)
    flat = [{**record, "busbw": 10} for record in records]
    assert groups(names, flat) == ([] if shows else None)
    # What could not be measured says nothing, and other hosts do not count.
    broken = [{**record, "busbw": value} for record, value in zip(records, (None, 0, "x", math.inf))]
    assert groups(names, [*records, *broken, {"hosts": ["n1", "other"], "busbw": 1}]) == groups(names, records)


def test_four_nodes_show_two_groups_only_beyond_doubt():
    names, near = ["n1", "n2", "n3", "n4"], ({"n1", "n3"}, {"n2", "n4"})
    for factor, expected in ((30, [["n1", "n3"], ["n2", "n4"]]), (1.2, [])):
        records = [
            {"hosts": list(pair), "latency_us": (20 if {*pair} in near else 20 * factor) * (1 + 0.02 * at)}
            for at, pair in enumerate(pair for each in pairing.full_rounds(names) for pair in each)
        ]
        assert groups(names, records) == expected


def test_halves_without_a_pair_between_them_are_no_groups():
    """A firewall or a schedule of their own: nothing says that such pairs would be slower."""
    halves = {(a, b): 1.0 + 0.01 * (a + b) for a in range(14) for b in range(a + 1, 14) if (a < 7) == (b < 7)}
    assert pair_groups.groups(14, halves) == []
    assert not pair_groups._stand_out([0] * 7 + [1] * 7, halves, 2.0)


def bandwidths(chance, names, between, slow=""):
    """Yield those of all pairs: `between` is the part that the way between two groups has; a slow node has the half."""
    for at, each in enumerate(pairing.full_rounds(names)):
        for pair in each:
            apart = names.index(pair[0]) % 2 != names.index(pair[1]) % 2
            busbw = 10 * (between if apart else 1) * (0.5 if slow in pair else 1) * chance.gauss(1, 0.01)
            yield {"hosts": list(pair), "round": at, "usual": "forged", "busbw": round(busbw, 6)}


def states(names, records):
    comparable = pair_groups.with_usual(pair_groups.topology(names, records), records)
    return {node["host"]: node["state"] for node in stragglers.verify(names, comparable)["nodes"]}


def test_no_node_is_blamed_for_the_way_to_another_switch_and_a_slow_one_is():
    """On hosts with 5 ms between two groups of three, each node of one group was slow: 2 % of the bandwidth."""
    for seed in range(CLUSTERS // 4):
        chance = random.Random(seed)  # noqa: S311
        names = [f"n{at}" for at in range(chance.choice((6, 8, 12, 16)))]
        between, slow = chance.choice((0.02, 0.3, 0.6)), chance.choice(names)
        found = states(names, list(bandwidths(chance, names, between)))
        assert set(found.values()) == {"pass"}, (seed, found)
        found = states(names, list(bandwidths(chance, names, between, slow)))
        named = [name for name, state in found.items() if state == "fail"]
        # A slow one of three nodes at a switch may have to be measured again.
        assert named == [slow] or (len(names) == 6 and not named and found[slow] == "unknown"), (seed, between, found)


def test_report_and_page_show_the_groups():
    hosts = ["n1", "n2", "n3", "n4"]
    switches = [{"path": ["group 1"], "hosts": ["n1", "n3"]}, {"path": ["group 2"], "hosts": ["n2", "n4"]}]
    found = {"source": "pairs", "reason": "", "switches": switches}
    pairs = {"state": "pass", "reason": "", "median": 1.0, "gate": 0.9, "nodes": [], "suspects": [], "retest": [],
                  "pairs": [], "topology": found}  # fmt: skip
    made = reported([phase("drift", ("kernel", "pass"))], hosts, stragglers=pairs)
    line = "2 groups by measured pairs: group 1 with 2 nodes, group 2 with 2 nodes"
    assert made["topology"] == found and line in report.terminal_text(made, "runs/x")
    page = verify_page(made)
    assert line in page and page.index("group 1</h3>") < page.index("n3") < page.index("group 2</h3>")
    flat = reported([], hosts, stragglers={**pairs, "topology": {**found, "reason": "flat", "switches": []}})
    assert "Topology: flat." in verify_page(flat) and "flat" not in report.terminal_text(flat, "runs/x")
    # A file and the switches themselves come before measurements.
    given = {**found, "source": "file"}
    assert reported([], hosts, stragglers=pairs, topology=given)["topology"] == given
    nodes = [{"host": host, "switch": "leaf1"} for host in hosts]
    assert reported([], hosts, stragglers=pairs, nodes=nodes)["topology"]["source"] == "lldp"
