"""Filters, as templates use them."""

import importlib.util
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parents[2] / "plugins/filter"


def filters():
    found = {}
    for path in sorted(FOLDER.glob("*.py")):
        spec = importlib.util.spec_from_file_location(path.stem, path)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        found.update(module.FilterModule().filters())
    return found


def test_peers_of_names_and_of_records():
    peers_of = filters()["peers_of"]
    names = ["n1", "n2", "n3", "n4", "n5"]
    assert peers_of(names, "n4", "all") == ["n5", "n1", "n2", "n3"]
    assert peers_of(names, "n4", 2) == ["n5", "n1"]
    records = [{"host": name, "port": 1} for name in names]
    assert peers_of(records, "n4", "2") == [{"host": "n5", "port": 1}, {"host": "n1", "port": 1}]
    assert peers_of(["n1"], "n1", "all") == []


@pytest.mark.parametrize(("own", "most", "said"), [
    ("n9", "all", "n9 is none of the nodes: n1"), ("n1", "some", "expected 'all' or a number of peers from 1 on"),
])  # fmt: skip
def test_peers_of_nobody(own, most, said):
    with pytest.raises(ValueError, match=said):
        filters()["peers_of"](["n1"], own, most)
