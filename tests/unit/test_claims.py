"""What README and docs claim in numbers and names, held against what there is."""

from __future__ import annotations

import re
from pathlib import Path

import yaml
from ansible.module_utils.trainyard.job.file.job import PLAN_OPTIONS
from ansible.module_utils.trainyard.job.file.variables import VARIABLES
from ansible.module_utils.trainyard.job.run.logs.failure_kinds import EXIT, FAILURE
from ansible.module_utils.trainyard.job.run.measure import rank_connections
from ansible.module_utils.trainyard.job.schedulers import plan_shape
from job_samples import make_job

PROJECT = Path(__file__).resolve().parents[2]


def test_the_page_of_the_plan_has_all_its_fields():
    page = (PROJECT / "docs/plan.md").read_text()
    names = {name.lstrip("?") for fields in (plan_shape._FIELDS, plan_shape._HOST) for name in fields} - {*PLAN_OPTIONS}
    assert {"min_nodes", "as_first"} <= names and [name for name in sorted(names) if f"`{name}`" not in page] == []


def test_the_page_of_a_run_has_all_fields_of_failures():
    page = (PROJECT / "docs/summary.md").read_text()
    names = {name.lstrip("?") for fields in (FAILURE.all, *FAILURE.kinds.values(), EXIT) for name in fields}
    assert {"attempt", "oom_kills", "folder"} <= names and [
        each for each in sorted(names) if f"`{each}`" not in page
    ] == []


def known_variables():
    names = set(VARIABLES)
    for path in PROJECT.glob("roles/*/defaults/main.yml"):
        names |= set(yaml.safe_load(path.read_text()))
    for spec in yaml.safe_load((PROJECT / "playbooks/meta/argument_specs.yml").read_text())["argument_specs"].values():
        names |= set(spec["options"])
    return names


def test_every_variable_on_a_page_exists():
    roles = sorted(path.name for path in PROJECT.glob("roles/*") if path.is_dir())
    name = re.compile(rf"`((?:{'|'.join([*roles, 'job', 'trainyard'])})_[a-z0-9_]+)[`:]")
    places = ("README*.md", "docs/*.md", "docs/zh/*.md", "roles/*/README.md")
    pages = [page for place in places for page in PROJECT.glob(place)]
    named = {found for page in pages for found in name.findall(page.read_text())}
    # Metrics, modules, plugins and scenarios have such names, too; job_x is an unknown variable in an example.
    folders = ("module_utils", "plugins", "roles", "playbooks", "library")
    code = [path for folder in folders for path in PROJECT.glob(f"{folder}/**/*") if path.suffix in (".py", ".yml")]
    others = {word for path in code for word in re.findall(r"\w+", path.read_text())}
    others |= {path.name for path in PROJECT.glob("molecule/*")} | {path.stem for path in code}
    assert len(named) > 300 and sorted(named - known_variables() - others - {"job_x"}) == []


def test_the_page_on_programs_names_existing_things():
    page = (PROJECT / "docs/your-program.md").read_text()
    job, pattern = (yaml.safe_load(text) for text in re.findall(r"```yaml\n(.*?)```", page, re.DOTALL))
    made = make_job(**{name.removeprefix("job_"): value for name, value in {**job, **pattern}.items()})
    assert re.search(made.progress_pattern, "update 7 of 9, objective 0.25").groupdict() == {
        "step": "7", "steps": "9", "loss": "0.25",
    }  # fmt: skip
    assert {*re.findall(r"\b(?:job|pytorch)_\w+", page)} - known_variables() == set()
    text = rank_connections.texts({"head": "n1", "hosts": [], "looks": 1, "launchers": []})[1]
    (warned,) = re.findall(r"see docs/your-program.md, ([\w ]+);", text)
    assert f"## {warned}\n" in page
    assert all((PROJECT / "docs" / path).exists() for path in re.findall(r"\]\(([^)#]+)", page))


def test_claims_about_security_name_existing_tests():
    short = {"T/": "tests/hostile/", "U/": "tests/unit/", "M/": "molecule/"}
    table = (
        (PROJECT / "docs/security.md").read_text().partition("## Which test holds which claim")[2].partition("\n## ")[0]
    )
    file, found = "", 0
    for named, test in re.findall(r"`([\w/.]*)::(test_\w+)`", table):
        file = f"{short.get(named[:2], named[:2])}{named[2:]}" if named else file
        assert f"def {test}(" in (PROJECT / file).read_text(), f"{file}: {test}"
        found += 1
    assert found > 30


def tasks(value):
    """Every dictionary in what a file of tasks says."""
    if isinstance(value, dict):
        yield value
    for each in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from tasks(each)


def test_every_download_has_a_checksum():
    files = [*PROJECT.glob("roles/*/tasks/*.yml"), *PROJECT.glob("playbooks/*.yml")]
    found = [task["download"] for path in files for task in tasks(yaml.safe_load(path.read_text()))
             if "download" in task]  # fmt: skip
    assert len(found) > 3
    assert [each["url"] for each in found if not each.get("checksum") or not each.get("validate_certs", True)] == []


def test_nothing_turns_the_check_of_host_keys_off():
    settings = (PROJECT / "ansible.cfg").read_text()
    assert re.search(r"^host_key_checking = true$", settings, re.MULTILINE)
    code = [path for folder in ("roles", "playbooks", "module_utils", "plugins", "templates", "inventories")
            for path in (PROJECT / folder).rglob("*") if path.is_file() and "/lab/" not in str(path)]  # fmt: skip
    off = re.compile(
        r"StrictHostKeyChecking[ =\"\',]*(?:no|off|accept-new)\b|host_key_checking[=:\s]*(?:false|no)\b", re.I
    )
    assert len(code) > 500
    assert [str(path) for path in code if path.suffix != ".pyc" and off.search(path.read_text(errors="replace"))] == []
