"""Rank tables: built as HCCL wants them, merged, repaired; any JSON is checked."""

from __future__ import annotations

import copy
import json
import re

import pytest
from ansible.module_utils.trainyard.ascend.rank_table import (
    Device,
    Server,
    build,
    device_set_problems,
    dumps,
    file_name,
    merge,
    path_problems,
    repair,
    validate,
)
from ansible.module_utils.trainyard.ascend.rank_table_view import loads
from hypothesis import given
from hypothesis import strategies as st
from rank_tables import FIRST, SECOND, a2, a3, edit, ranks, server

# ---- built


def test_the_table_of_super_pods():
    table = build(
        [
            Server("node_1", (Device(0, super_device_id="4"),), host_ip="10.0.0.2", super_pod_id="7"),
            Server("node_0", (Device(0, "192.1.0.6", "4"),), super_pod_id="3"),
            Server("node_2", (Device(0, "192.1.0.7", "5"),), super_pod_id="3"),
        ],
        "a3",
    )
    assert table["version"] == "1.2"
    assert table["super_pod_list"] == [
        {"super_pod_id": "3", "server_list": [{"server_id": "node_0"}, {"server_id": "node_2"}]},
        {"super_pod_id": "7", "server_list": [{"server_id": "node_1"}]},
    ]
    assert table["server_list"][0] == {
        "server_id": "node_0",
        "device": [{"device_id": "0", "device_ip": "192.1.0.6", "super_device_id": "4", "rank_id": "0"}],
    }
    assert table["server_list"][1] == {
        "server_id": "node_1",
        "host_ip": "10.0.0.2",
        "device": [{"device_id": "0", "super_device_id": "4", "rank_id": "1"}],
    }


def test_servers_stand_in_dictionary_order_and_devices_as_given():
    table = build([server(2, [7, 5]), server(10, [4, 6]), server(1, [0, 1])], "910b")
    assert [
        (entry["server_id"], [(device["rank_id"], device["device_id"]) for device in entry["device"]])
        for entry in table["server_list"]
    ] == [
        ("10.0.0.1", [("0", "0"), ("1", "1")]),
        ("10.0.0.10", [("2", "4"), ("3", "6")]),
        ("10.0.0.2", [("4", "7"), ("5", "5")]),
    ]


def test_the_version_can_be_chosen():
    assert [build([], chip)["version"] for chip in ("910", "910b", "a3")] == ["1.0", "1.0", "1.2"]
    assert build([], "910b", "1.2")["version"] == "1.2"
    with pytest.raises(ValueError, match=re.escape("version '1.1': expected auto or one of 1.0, 1.2")):
        build([], "910b", "1.1")
    for call in (lambda: build([], "v100"), lambda: validate({}, "v100"), lambda: device_set_problems([0], "v100", 1)):
        with pytest.raises(ValueError, match="chip 'v100': expected one of 910, 910b, a3"):
            call()


@pytest.mark.parametrize(
    ("table", "name"),
    [
        (build([Server("127.0.0.1", tuple(Device(at) for at in range(8)))], "910"), "hccl_8p_01234567_127.0.0.1.json"),
        (build([Server("127.0.0.1", tuple(Device(at) for at in range(4, 8)))], "910"), "hccl_4p_4567_127.0.0.1.json"),
        (a2(2, 8), "hccl_2s_16p.json"),
        (build([Server("../n1\n", (Device(15),))], "910b"), "hccl_1p_15_.._n1_.json"),
    ],
)
def test_conventional_names(table, name):
    assert file_name(table) == name


# ---- merged


def test_super_pods_are_joined():
    servers = [server(at, super_pod_id=pod) for at, pod in ((1, "0"), (2, "1"), (3, "0"), (4, "1"))]
    assert merge([build([each], "a3") for each in servers]) == (build(servers, "a3"), [])


def test_problems_that_merging_hides_are_named():
    parts = [build([server(number)], "910b") for number in (1, 2, 3, 4)]
    parts[0] = edit(parts[0], [*FIRST, "rank_id"], 0)
    parts[1] = edit(parts[1], ["server_count"], "2")
    parts[2] = edit(parts[2], ["version"], "1.2")
    parts[3] = edit(edit(parts[3], ["status"], "initializing"), [*FIRST, "device_id"], "99")
    merged, problems = merge([*parts, {"server_list": []}, 5])
    assert [(problem.check, problem.host, problem.found) for problem in problems] == [
        ("string", "tables[0], server 10.0.0.1, device 0, rank 0", "rank_id is 0, a number"),
        ("server_count", "tables[1], table", "server_count 2"),
        ("version", "tables[2], table", 'version "1.2"'),
        ("structure", "tables[4], table", "server_list []"),
        ("structure", "tables[5], table", "5"),
        ("status", "table", 'status "initializing"'),
        ("device_id", "server 10.0.0.4, device 99, rank 6", "device_id 99"),
    ]
    assert len(merged["server_list"]) == 4


def test_problems_between_tables_are_named():
    one = build([server(1)], "910b")
    _, problems = merge([one, one, build([server(3, 1)], "910b")], "910b")
    assert [(problem.check, problem.host) for problem in problems] == [
        ("server_id_unique", "server_list[1]"),
        ("device_count", "server 10.0.0.3"),
        ("device_ip_unique", "server 10.0.0.1, device 0, rank 2"),
        ("device_ip_unique", "server 10.0.0.1, device 1, rank 3"),
    ]
    assert [problem.check for problem in merge([])[1]] == ["structure", "version", "status", "server_count"]


# ---- repaired


def test_tables_of_usual_generators_are_repaired():
    servers = [server(number) for number in (2, 10, 1)]
    right = build(servers, "910b")
    wrong = ranks(right, 2, 3, 4, 5, 0, 1)  # in the order of its arguments
    for entry in wrong["server_list"]:
        for device in entry["device"]:
            device["rank_id"] = int(device["rank_id"])
    wrong["status"] = "initializing"
    del wrong["server_count"]
    before = copy.deepcopy(wrong)
    repaired, cured = repair(wrong)
    assert repaired == {**right, "server_list": repaired["server_list"]}
    assert repaired["server_list"] == right["server_list"]
    assert wrong == before
    assert [problem.check for problem in cured] == ["string"] * 6 + ["server_count"] + ["rank_order"] * 3 + ["status"]
    assert set(cured) == set(validate(wrong))


def test_a_right_table_stays_as_it_is():
    table = a2()
    assert repair(table) == (table, [])


@pytest.mark.parametrize(
    ("table", "cured", "left"),
    [
        # A server may be missing.
        (edit(a2(), ["server_count"], "3"), [], ["server_count"]),
        # It may not be complete.
        (edit(edit(a2(), ["status"], "x"), [*SECOND, "device_ip"], None), [], ["status", "device_ip_missing"]),
        (edit(a2(), [*SECOND, "rank_id"], "2"), [], ["rank_id_unique"]),
        (edit(a2(), [*SECOND, "rank_id"], None), [], ["rank_id"]),
        (edit(a2(), [*FIRST, "rank_id"], None), [], ["rank_id"]),
        (edit(a2(), [*SECOND, "rank_id"], True), [], ["string", "rank_id"]),
        (edit(ranks(a2(), 2, 3, 0, 1), ["server_list", 0, "server_id"], None), [], ["server_id"]),
        (edit(a2(), ["version"], None), [], ["version"]),
        (edit(a2(), ["status"], {"": 0}), [], ["status"]),
        # Its ranks may be those that are missing.
        (
            edit(a2(), ["server_list", 0, "device"], []),
            [],
            ["structure", "rank_id_contiguous", "rank_id_contiguous", "device_count"],
        ),
        (ranks(a2(), 0, 1, 0, 1), ["rank_id_unique"] * 2 + ["rank_order"], []),
        (ranks(a2(), 4, 5, 8, 9), ["rank_id_contiguous"] * 4, []),
        (edit(a2(), ["version"], 1.0), ["string"], []),
        (edit(a2(), ["server_count"], 3), ["string"], ["server_count"]),
    ],
)
def test_only_what_is_certain_is_repaired(table, cured, left):
    repaired, done = repair(table)
    assert [problem.check for problem in done] == cured
    assert [problem.check for problem in validate(repaired)] == left


# ---- files


def test_names_and_texts_of_files():
    assert path_problems("/a/b.json") == []
    (problem,) = path_problems("/a/b.txt")
    assert (problem.check, problem.host) == ("file_name", "/a/b.txt")
    assert problem.expected == "a name that ends in .json, and .json nowhere before in the path"
    # HCCL's parser compares the end with the first place that it finds.
    assert [each.found for each in path_problems("/a.json/b.json")] == ["a second .json before the end"]
    assert loads(dumps(a2())) == (a2(), [])
    for text, where in (('{\n  "a": }', "line 2, column 8"), ("[" * 100_000, "file"), ("9" * 5000, "file")):
        value, (problem,) = loads(text)
        assert value is None and (problem.check, problem.host) == ("json", where)
        assert problem.found


# ---- anything

chips = st.sampled_from(["910", "910b", "a3"])


@st.composite
def clusters(draw):
    """A chip, and servers that it can have."""
    chip = draw(chips)
    names = draw(st.lists(st.text(min_size=1, max_size=64), unique=True, min_size=1, max_size=5))
    sets = st.sampled_from([[0], [1, 2], [4, 5, 6, 7], list(range(8))])
    ids = list(range(8)) if chip == "910" and len(names) > 1 else draw(sets)
    family = draw(st.sampled_from(["192.{}.{}.1", "fd00::{}:{}"]))
    return chip, [
        Server(name, tuple(Device(each, family.format(each + 1, at), f"{at}{each}") for each in ids))
        for at, name in enumerate(names)
    ]


@given(clusters())
def test_a_built_table_is_valid(cluster):
    chip, servers = cluster
    table = build(servers, chip)
    assert validate(table, chip) == []
    assert loads(dumps(table)) == (table, [])
    assert json.loads(dumps(table)) == table
    devices = [device for entry in table["server_list"] for device in entry["device"]]
    assert [device["rank_id"] for device in devices] == [str(rank) for rank in range(len(devices))]
    assert [entry["server_id"] for entry in table["server_list"]] == sorted(each.server_id for each in servers)
    assert "/" not in file_name(table) and path_problems(file_name(table)) == []


@given(clusters(), st.randoms(use_true_random=False))
def test_any_order_of_merging_gives_the_same_table(cluster, random):
    chip, servers = cluster
    complete = build(servers, chip)
    parts = [build([each], chip) for each in servers]
    random.shuffle(parts)
    assert merge(parts, chip) == (complete, [])


@given(clusters(), st.randoms(use_true_random=False))
def test_numbers_and_any_order_of_ranks_are_repaired(cluster, random):
    chip, servers = cluster
    complete = build(servers, chip)
    shuffled = copy.deepcopy(complete)
    random.shuffle(shuffled["server_list"])
    rank = 0
    for entry in shuffled["server_list"]:
        for device in entry["device"]:
            device["rank_id"] = rank
            rank += 1
    repaired, _ = repair(shuffled)
    repaired["server_list"].sort(key=lambda entry: entry["server_id"])
    assert repaired == complete


scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)
numbers = st.integers(-1, 20) | st.integers(-1, 20).map(str)
values = st.recursive(
    scalars | numbers,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


def paths(value, way=()):
    """Yield the way to each part of a table."""
    for key, part in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield (*way, key)
        yield from paths(part, (*way, key))


@st.composite
def nearly_tables(draw):
    """A table with some fields set to anything or taken out."""
    table = draw(st.sampled_from([a2(), a2(3, 1), a3(), a3("0101")]))
    for _ in range(draw(st.integers(0, 4))):
        ways = list(paths(table))
        if ways:
            table = edit(table, draw(st.sampled_from(ways)), draw(values))
    return table


@given(nearly_tables() | values, st.just("") | chips)
def test_any_json_can_be_checked_and_repaired(table, chip):
    before = copy.deepcopy(table)
    problems = validate(table, chip)
    assert len(set(problems)) == len(problems)
    repaired, cured = repair(table)
    assert json.dumps(table) == json.dumps(before)
    assert set(cured) <= set(validate(table))
    # Problems without a repair remain, and a second repair has nothing to do.
    left = {problem.check for problem in validate(repaired if isinstance(table, dict) else table)}
    assert {problem.check for problem in validate(table) if problem not in cured} <= left
    again, more = repair(repaired)
    assert more == [] and json.dumps(again) == json.dumps(repaired)
    if isinstance(table, dict):
        assert json.loads(dumps(repaired)) == json.loads(json.dumps(repaired)) or "NaN" in json.dumps(repaired)
        assert "/" not in file_name(repaired)


@given(st.lists(nearly_tables() | values, max_size=3))
def test_any_tables_can_be_merged(tables):
    merged, problems = merge(tables)
    assert problems or validate(merged) == []
    # No fault of a table is lost, except in those of which nothing is taken over.
    for table in tables:
        if isinstance(table, dict) and [each for each in validate(table) if each.check == "server_count"]:
            assert problems


@given(st.text())
def test_any_text_can_be_read(text):
    value, problems = loads(text)
    assert validate(value) or not problems
    assert all(problem.found for problem in problems)
