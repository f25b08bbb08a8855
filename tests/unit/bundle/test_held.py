"""What keeps a host to a lock: apt's preferences, and what its mirror has no more, by a fake apt-get."""

from pathlib import Path

import pytest
from ansible.module_utils.trainyard.bundle import held
from ansible.module_utils.trainyard_node.machine.tree import Outcome
from ansible.module_utils.trainyard_node.software import apt_calls
from ansible.module_utils.trainyard_node.software.can_install import can_install

LOCKED = {"rsync": "3.2.7-1", "libpopt0": "1.19+dfsg-1"}
SIMULATED = """\
Inst libpopt0 (1.19+dfsg-1 Debian:12.15/oldstable [amd64])
Inst rsync ({version} Debian:12.15/oldstable [amd64])
Inst other [1.0] (2.0 Debian:12.15/oldstable [amd64])
Remv third [1.0]
"""


def test_preferences_hold_each_package_and_downgrade_none():
    text = held.preferences(LOCKED)
    assert "Package: rsync\nPin: version 3.2.7-1\nPin-Priority: 995\n\n" in f"{text}\n"
    assert text.count("Pin-Priority: 995") == 2 and text.startswith("# ") and "bundle_leave.yml" in text
    assert held.preferences({}) == ""


def test_a_mirror_that_has_all_versions():
    assert held.lacking(LOCKED, ["rsync"], 0, SIMULATED.format(version="3.2.7-1")) == []


def test_a_version_that_the_mirror_has_no_more():
    (found,) = held.lacking(LOCKED, ["rsync"], 0, SIMULATED.format(version="3.2.7-2"))
    assert found.found == "the mirror has rsync 3.2.7-1 no more, but 3.2.7-2"
    assert "lock_upgrade" in found.action and "trainyard_bundle" in found.action


def test_packages_that_cannot_be_had_at_all():
    (found,) = held.lacking(LOCKED, ["nowhere"], 100, "E: Unable to locate package nowhere\n")
    assert found.found == "apt-get install nowhere is not possible: E: Unable to locate package nowhere"


@pytest.fixture
def machine(monkeypatch):
    """A machine that has popt alone: its calls of apt, what `update` and `--simulate` return, and what they read."""
    calls, results, seen = [], {}, {}

    def run(argv, _timeout=300):
        calls.append(argv)
        given = dict(each.split("=", 1) for each in argv if "=" in each and "::" in each)
        if argv[0] == "dpkg-query":
            return Outcome(0, "libpopt0\t1.19+dfsg-1\tinstalled\tinstall\n")
        lists = Path(given["Dir::State::lists"])
        seen[argv[1]] = sorted(path.name for path in lists.iterdir())
        if "Dir::Etc::preferences" in given:
            seen["preferences"] = Path(given["Dir::Etc::preferences"]).read_text()
        if "Dir::Etc::sourcelist" in given:
            seen["source"] = Path(given["Dir::Etc::sourcelist"]).read_text()
        return results.get(argv[1], Outcome(0, SIMULATED.format(version="3.2.7-2")))

    monkeypatch.setattr(apt_calls, "_run", run)
    # The lists' folder need not be root's here.
    monkeypatch.setattr(apt_calls, "expect_safe", lambda path: None)
    return calls, results, seen


def found(packages, source=""):
    locked = {"versions": LOCKED, "packages": packages, "source": source}
    return [each["found"] for each in can_install(requests={}, locked=locked)["findings"]]


def test_installed_packages_cost_no_request(machine):
    calls, _, _ = machine
    assert found(["libpopt0", "libpopt0=1.19"]) == [] and [call[0] for call in calls] == ["dpkg-query"]


def test_missing_packages_are_simulated_by_the_newest_lists(machine, tmp_path, monkeypatch):
    """The machine's own lists stay, and save fetching what is not newer."""
    calls, _, seen = machine
    (tmp_path / "partial").mkdir()
    for name in ("mirror_Packages", "lock"):
        (tmp_path / name).touch()
    (tmp_path / "local_Packages").symlink_to("/proc/nowhere")
    monkeypatch.setattr(apt_calls, "LISTS", tmp_path)
    assert found(["libpopt0", "rsync"]) == ["the mirror has rsync 3.2.7-1 no more, but 3.2.7-2"]
    assert seen["update"] == ["local_Packages", "mirror_Packages"] and seen["preferences"] == held.preferences(LOCKED)
    assert calls[-1][-2:] == ["--", "rsync"] and "source" not in seen
    assert found(["rsync"], "deb http://m.example.org/debian bookworm main\n") != []
    assert seen["source"] == "deb http://m.example.org/debian bookworm main\n"


def test_a_mirror_that_does_not_answer(machine):
    _, results, _ = machine
    results["update"] = Outcome(100, "E: The repository 'http://m.example.org x Release' is not signed.\n")
    (text,) = found(["rsync"])
    assert text.startswith("the mirrors of this machine's apt: ") and "not signed" in text


def test_a_machine_without_apt(monkeypatch):
    def none(argv, timeout=300):
        raise apt_calls.AptError("dpkg-query is not installed")

    monkeypatch.setattr(apt_calls, "_run", none)
    assert found(["rsync"]) == ["dpkg-query is not installed"]
