"""The table of an upgrade on the controller, from one run to the next."""

from __future__ import annotations

import json

import pytest

TARGET = {"provider": "network_repo", "version": "550.127.08", "flavour": "open"}
BEFORE = {
    **{"provider": "network_repo", "version": "550.54.15", "flavour": "open", "runfile": "", "record": "", "parts": {}},
    **{"packages": {"nvidia-smi": "550.54.15-1"}, "held": []},
}


def test_a_table_is_read_again_and_has_a_text(act, tmp_path):
    def table(**given):
        return act("site_nodes", step="upgrade_table", runs=str(tmp_path), cluster="c", **given)

    assert table()["table"] == {}
    waiting = {host: {"state": "waiting", "why": "", "target": TARGET} for host in ("n1", "n2")}
    assert table(entries=waiting, check=True)["text"].splitlines()[-1] == "2 nodes: 2 waiting"
    assert not list(tmp_path.iterdir())
    table(entries=waiting, batches=[["n2"], ["n1"]])
    noted = table(entries={"n2": {**waiting["n2"], "state": "installing", "before": BEFORE}})
    assert noted["table"]["n1"]["state"] == "waiting"
    read = table()
    assert read["table"] == noted["table"] and read["table"]["n2"]["before"] == BEFORE
    text = (tmp_path / "nvidia-upgrade-c/table.txt").read_text()
    assert "n2    -      installing  550.127.08 (network_repo)" in text
    assert json.loads((tmp_path / "nvidia-upgrade-c/table.json").read_text())["nodes"] == noted["table"]
    # A step keeps what it had; another target does not.
    moved = table(entries={"n2": {"state": "rebooting", "why": "", "target": TARGET}})
    assert moved["table"]["n2"]["before"] == BEFORE
    other = table(entries={"n2": {"state": "waiting", "why": "", "target": {**TARGET, "version": "560.35.03"}}})
    assert "before" not in other["table"]["n2"]


@pytest.mark.parametrize("content", ["", "{", "[]", '{"nodes": []}', '{"nodes": {"n1": 3}}'])
def test_a_malformed_table_is_not_overwritten(act, tmp_path, content):
    folder = tmp_path / "nvidia-upgrade-c"
    folder.mkdir()
    (folder / "table.json").write_text(content)
    entries = {"n1": {"state": "waiting"}}
    found = act("site_nodes", step="upgrade_table", runs=str(tmp_path), cluster="c", entries=entries)
    assert found["failed"] and "table.json" in found["msg"] and "expected" in found["msg"]
    assert (folder / "table.json").read_text() == content
