"""A lock that is there already, is only previewed, or names what the mirror has no more: rules that have unit tests.

pytest tests/lock_by_name.py in the scenario's folder, after `make molecule SCENARIO=openmpi`.
"""

from pathlib import Path

from test_lock import asked, held

# Fixtures that the tests get by their names.
__all__ = ["asked", "held"]


def test_a_preview_writes_no_lock(run_playbook, tmp_path):
    path = tmp_path / "trainyard.lock"
    given = {"trainyard_frameworks": ["openmpi"], "trainyard_lock": str(path)}
    run_playbook("playbooks/lock.yml", "--check", **given).expect(0)
    assert not path.exists()


def test_a_lock_is_written_once(asked, run_playbook):
    path = Path(asked["trainyard_lock"])
    written = path.read_text()
    run_playbook("playbooks/lock.yml", **asked).changes_nothing()
    assert path.read_text() == written


def test_a_version_that_the_mirror_has_no_more_is_named_before_anything_is_touched(held, run_playbook, node_names):
    only = ("--limit", node_names[0], "--tags", "node_baseline")
    refused = run_playbook("site.yml", *only, **held("0.9"))
    refused.expect(2, "the mirror has trainyard-held 0.9 no more, but 2.0", "Nothing was changed").changes_nothing()

    run_playbook("site.yml", *only, **held("1.0")).expect(0, "trainyard-held")
    run_playbook("site.yml", *only, **held("1.0")).changes_nothing()


def test_site_yml_installs_the_versions_of_the_lock(held, run_playbook, node, node_names):
    only = ("--limit", node_names[0], "--tags", "node_baseline")
    run_playbook("site.yml", *only, **held("1.0")).expect(0, "trainyard-held")
    first = node(node_names[0])
    assert first.check_output("dpkg-query -W -f '${Version}' trainyard-held") == "1.0"
    assert not first.file("/etc/apt/preferences.d/trainyard-lock").exists
