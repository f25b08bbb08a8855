"""Every documented variable: its texts become values, or a finding says how to write it."""

import math
import re

import pytest
import yaml
from ansible.module_utils.trainyard.base.adhoc import from_here
from ansible.module_utils.trainyard.inputs import input_variables, job_file
from ansible.module_utils.trainyard.inputs.input_variables import COMMAND_LINE, Place
from documented import KNOWN, PROJECT, ROLES, SPECS
from hypothesis import given
from hypothesis import strategies as st

FILE = Place("in jobs/x.yml, line 3", "jobs/x.yml")


def of_kind(*kinds):
    return sorted(name for name, variable in KNOWN.items() if variable.kind in kinds)


def convert(name, value):
    return input_variables.convert(KNOWN[name], value, yaml.safe_load)


def refused(name, value, place=COMMAND_LINE):
    """Return the only finding about a value, of which nothing is converted."""
    changes, findings = input_variables.converted({name: value}, lambda _: place, KNOWN, yaml.safe_load)
    assert changes == {}
    (finding,) = findings
    assert (finding.host, finding.check) == ("", name)
    return finding


def test_the_table_has_variables_of_every_kind_from_roles_and_playbooks():
    kinds = {
        "trainyard_state": "path",
        "nvidia_driver_reboot": "bool",
        "verify_phases": "list",
        "benchmark_env": "dict",
    }
    for name, kind in {**kinds, "clean_days": "float", "job_timeout": "int", "job_port": "raw", "job": "path"}.items():
        assert KNOWN[name].kind == kind, name
    assert len(of_kind("bool")) >= 40 and len(of_kind("int", "float")) >= 60 and len(of_kind("list", "dict")) >= 60


def test_every_truth_value_is_one_from_the_command_line():
    for name in of_kind("bool"):
        for text in ("true", "yes", "on", "1", "True", "YES"):
            assert convert(name, text) is True
        for text in ("false", "no", "off", "0", "False", "NO"):
            assert convert(name, text) is False
        assert convert(name, 1) is True and convert(name, False) is False
        for text in ("two", "", "2"):
            assert refused(name, text).expected == "true or false (or yes, no, on, off, 1, 0)"
        assert refused(name, "nope").action == f"write -e {name}=true or -e {name}=false"


def test_every_whole_number_is_one_from_the_command_line():
    for name in of_kind("int"):
        for text, number in {"3": 3, "0": 0, "-1": -1, " 7 ": 7}.items():
            assert convert(name, text) == number and type(convert(name, text)) is int
        assert convert(name, 3.0) == 3
        for value in ("two", "2h", "2.5", "1e3", "", True, 2.5, "1_0"):
            finding = refused(name, value)
            assert finding.expected.startswith("a whole number")
            assert repr(value) in finding.found
            assert finding.action.startswith(f"write a number without a unit, such as -e {name}=")


def test_a_number_of_a_job_has_its_range():
    finding = refused("job_timeout", "2h", FILE)
    assert finding.found == "'2h' in jobs/x.yml, line 3"
    assert finding.expected == "a whole number from 1 to 31536000"
    assert finding.action.endswith("job_timeout: 86400")


def test_every_number_is_one_from_the_command_line():
    for name in of_kind("float"):
        for text, number in {"0.5": 0.5, "3": 3, "1e-3": 0.001}.items():
            assert convert(name, text) == number
        for value in ("two", "2h", "nan", "inf", "", True, math.nan):
            assert refused(name, value).expected == "a number"


def test_every_list_is_one_as_yaml_and_a_bare_text_says_how_to_write_it():
    for name in of_kind("list"):
        assert convert(name, "[]") == []
        numbers = KNOWN[name].elements in ("int", "float")
        words = ["1", "2"] if numbers else ["a", "b"]
        assert convert(name, f"[{words[0]}, '{words[1]}']") == ([1, 2] if numbers else words)
        for text in (", ".join(words), " ".join(words), f"{words[0]},{words[1]}"):
            finding = refused(name, text)
            assert finding.expected == "a list"
            if not input_variables._SECRET.search(name):
                assert finding.action == f"write -e '{name}=[{words[0]}, {words[1]}]'"
                assert finding.found == f"{text!r} on the command line"
        if not input_variables._SECRET.search(name):
            assert refused(name, "reach", FILE).action == f"write {name}: [reach]"
            assert refused(name, "[reach").action == f"write -e '{name}=[reach]'"
        assert refused(name, {"a": 1}).expected == "a list"
        if numbers:
            assert refused(name, "[1, two]").expected == "a list, each item of it a whole number"


def test_every_dictionary_is_one_as_yaml():
    for name in of_kind("dict"):
        assert convert(name, "{A: 1, B: x}") == {"A": 1, "B": "x"}
        finding = refused(name, "A=1")
        assert finding.expected == "a dictionary of NAME: value pairs"
        assert finding.action == f"write -e '{name}={{NAME: value}}'"
        assert refused(name, ["A=1"]).expected == finding.expected


@pytest.mark.parametrize("name", ["job_secret_env", "job_events", "verify_events"])
def test_secrets_are_not_shown(name):
    assert "hush" not in str(refused(name, "hush"))


def test_texts_stay_texts():
    for name in of_kind("str", "path", "raw"):
        for text in ("two", "2h", "no", "1", "", "[4,8)", "a, b"):
            assert convert(name, text) == text and type(convert(name, text)) is str


@given(st.sampled_from(sorted(KNOWN)), st.sampled_from(["{{ lr }}", "[{{ lr }}]", "{% if a %}1{% endif %}"]))
def test_templates_are_left_to_jinja(name, text):
    assert convert(name, text) == text


anything = [st.none(), st.booleans(), st.integers(), st.floats(), st.text(), st.lists(st.text())]


@given(st.sampled_from(sorted(KNOWN)), st.one_of(*anything, st.dictionaries(st.text(), st.integers())))
def test_any_value_is_converted_once_or_gives_a_finding(name, value):
    changes, findings = input_variables.converted({name: value}, lambda _: COMMAND_LINE, KNOWN, yaml.safe_load)
    assert not (changes and findings)
    for finding in findings:
        assert all((finding.check, finding.found, finding.expected, finding.action))
    # A converted value is valid the second time.
    assert input_variables.converted(changes, lambda _: COMMAND_LINE, KNOWN, yaml.safe_load) == ({}, [])


@pytest.mark.parametrize(
    ("name", "likely"),
    [
        ("jobname", "job_name"),
        ("job_nmae", "job_name"),
        ("job_proceses_per_node", "job_ranks_per_node"),
        ("jobs", "job"),
        ("job_xyzzy", ""),
        ("trainyard_manage_sytem", "trainyard_manage_system"),
        ("trainyard_xyzzy", ""),
        ("verify_phase", "verify_phases"),
        ("nvidia_driver_rebot", "nvidia_driver_reboot"),
        ("pair_round", "pair_rounds"),
        ("tranyard_state", "trainyard_state"),
    ],
)
def test_a_misspelt_name_is_a_finding_with_the_likely_one(name, likely):
    (finding,) = input_variables.unknown({name: [COMMAND_LINE]}, KNOWN)
    assert finding.found == f"unknown variable {name} on the command line"
    assert finding.action == (f"did you mean {likely}?" if likely else finding.action)
    assert likely or finding.action.startswith("remove ")


def test_documented_names_and_those_of_users_are_accepted():
    own = ["lr", "epochs", "data_root", "interval", "ssl", "my_dataset", "ansible_user", "__job_x", "step", "live_dir"]
    assert input_variables.unknown(dict.fromkeys([*KNOWN, *own], (COMMAND_LINE,)), KNOWN) == []


@pytest.mark.parametrize("name", ["check_interval", "verify_ssl", "dataset_dir", "nvidia_x", "ssh_mesh_y", "slurm_z"])
def test_an_unknown_name_with_a_prefix_of_the_project_is_a_finding(name):
    (finding,) = input_variables.unknown({name: [FILE]}, KNOWN)
    assert finding.found == f"unknown variable {name} in jobs/x.yml, line 3"
    assert finding.action.startswith(f"remove {name}, or rename it: names with ")


def test_a_name_in_several_places_is_found_in_each():
    other = Place("in group_vars/all.yml, line 1", "group_vars/all.yml")
    findings = input_variables.unknown({"pytorch_verison": [FILE, other], "job_xyzzy": [other]}, KNOWN)
    places = [("pytorch_verison", FILE), ("pytorch_verison", other), ("job_xyzzy", other)]
    assert [finding.found for finding in findings] == [
        f"unknown variable {name} {place.text}" for name, place in places
    ]
    assert findings[2].action == "remove it from group_vars/all.yml"


def test_an_unused_extra_variable_that_resembles_a_documented_one_is_misspelt():
    for name, meant in {"folow": "follow", "livee": "live", "bechmark_nodes": "benchmark_nodes"}.items():
        (finding,) = input_variables.unknown({name: [COMMAND_LINE]}, KNOWN, own=())
        assert finding.action == f"did you mean {meant}?"
    assert (
        input_variables.unknown({"folow": [COMMAND_LINE], "lives": [COMMAND_LINE]}, KNOWN, own={"folow", "lives"}) == []
    )
    assert input_variables.unknown({"folow": [COMMAND_LINE]}, KNOWN) == []


def test_a_list_in_an_option_is_complete():
    lists = {
        name: name.partition("=")[2]
        for name in ("job_devices=[0, 1]", "job_env={A: 1, B: 2}", "job_devices=[1 job_x=2]")
    }
    others = ["lr=[1, 2]", "job_name=[a b]", "a=1"]
    assert input_variables.whole_options([*lists, *others], KNOWN, yaml.safe_load) == lists


def test_an_option_that_begins_like_yaml_must_be_a_dictionary():
    def found(option):
        finding = input_variables.no_dictionary(option, lambda: yaml.safe_load(option))
        return finding and finding.found

    assert found("{a: 1}") is None
    assert found("[1]") == "'[1]': it is a list"
    assert found("{a: 1").startswith("'{a: 1': ")


@pytest.mark.parametrize(
    ("option", "rest", "found", "action"),
    [
        ("jobs/x.yml", "jobs/x.yml", "-e jobs/x.yml", "write -e @jobs/x.yml, or -e job=jobs/x.yml"),
        ("x.yaml", "x.yaml", "-e x.yaml", "write -e @x.yaml, or -e job=x.yaml"),
        ("job_wait", "job_wait", "'job_wait' without = in -e 'job_wait'", "write -e job_wait=VALUE"),
        (
            "a=1 b",
            "b",
            "'b' without = in -e 'a=1 b'",
            "put the whole value into quotes within quotes: -e 'NAME=\"a b\"'",
        ),
    ],
)
def test_an_option_without_a_variable_is_a_finding(option, rest, found, action):
    finding = input_variables.no_variable(option, rest)
    assert (finding.found, finding.action) == (found, action)


@pytest.mark.parametrize(
    ("path", "action"),
    [
        ("jobs/digit.yml", "did you mean jobs/digits.yml?"),
        ("digits", "did you mean jobs/digits.yml?"),
        ("/srv/resnet18-cifar.yml", "did you mean jobs/resnet18-cifar10.yml?"),
        ("xyzzy.yml", "correct the path; it counts from here, or from the project"),
    ],
)
def test_a_missing_job_file_is_named_with_the_likely_one(path, action):
    finding = job_file.missing(path, ["jobs/digits.yml", "jobs/resnet18-cifar10.yml"])
    assert (finding.found, finding.action) == (f"no file {path}", action)


@pytest.mark.parametrize(
    ("data", "found"),
    [(None, "nothing"), ({}, "nothing"), ("", "nothing"), (["a"], "a list"), ("a", "a text"), (3, "a int")],
)
def test_a_job_file_needs_variables(data, found):
    finding = job_file.not_a_job("x.yml", data)
    assert finding.found == f"{found} in x.yml"
    assert job_file.not_a_job("x.yml", {"job_name": "x"}) is None


def test_paths_are_shown_relative_to_the_current_folder():
    assert from_here("/a/b/jobs/x.yml", "/a/b") == "jobs/x.yml"
    assert from_here("/a/bc/x.yml", "/a/b") == "/a/bc/x.yml"
    assert from_here("/x.yml", "/") == "x.yml"


def test_a_tab_is_named_with_its_line():
    finding = job_file.not_yaml("x.yml", "job_env:\n\tA: 1\n", 2, "whatever")
    assert finding.found == "a tab at the beginning of x.yml, line 2"
    other = job_file.not_yaml("x.yml", "a: 1\nb: c: d\n", 2, "no colon here")
    assert (other.found, other.expected) == ("x.yml, line 2: b: c: d", "YAML: no colon here")
    unread = job_file.not_yaml("x.yml", "", None, "no vault secrets")
    assert (unread.found, unread.expected) == ("x.yml", "a job file that can be read: no vault secrets")


def test_an_undefined_variable_is_named_with_its_users():
    users = {"job_command": FILE, "job_nodes": COMMAND_LINE}
    finding = job_file.undefined("lr", users, ["trainyard_state"])
    assert "no variable lr" in finding.found
    assert "job_command in jobs/x.yml, line 3, job_nodes on the command line" in finding.found
    assert finding.action == "write lr: VALUE in the job file, or -e lr=VALUE"
    # A variable of the nodes' groups is undefined, too, as jobs are planned on localhost.
    assert finding.expected.startswith("variables of the inventory's group all, of the job file,")
    misspelt = job_file.undefined("trainyard_stat", users, ["trainyard_state"])
    assert misspelt.action.startswith("did you mean trainyard_state?")


def test_a_variable_of_the_cluster_must_be_equal_everywhere():
    finding = input_variables.differs("trainyard_state", "/var/lib/trainyard", [("/a", ["n1", "n2"]), ("/b", ["n3"])])
    assert finding.found.startswith("/a on n1, n2, /b on n3; /var/lib/trainyard on localhost")


# Another role may choose these; the documented value is the one without it.
CHOSEN = {"mindspore_device": "cpu", "mindspore_cuda": "", "pytorch_build": "auto"}


def test_a_role_has_the_same_variables_with_the_same_defaults_in_both_its_lists():
    for role in ROLES:
        path = PROJECT / f"roles/{role}/defaults/main.yml"
        defaults = (yaml.safe_load(path.read_text()) if path.is_file() else None) or {}
        options = {}
        for entry in SPECS[role].values():
            for name, option in (entry.get("options") or {}).items():
                same = {**option, "description": ""}
                assert options.setdefault(name, same) == same, name
        assert set(defaults) == {name for name, option in options.items() if not option.get("required")}
        for name, default in defaults.items():
            computed = "{{" in str(default)
            documented = options[name].get("default", default if computed else None)
            assert documented == (CHOSEN[name] if computed and name in CHOSEN else default), name


def test_defaults_of_playbooks_are_those_of_their_argument_specs():
    found = []
    for path in [*PROJECT.glob("playbooks/*.yml"), *PROJECT.glob("roles/verify/tasks/*.yml"), PROJECT / "launch.yml"]:
        for name, value in re.findall(r"\b([a-z]+_\w+) \| default\(([^()]+?)(?:, true)?\)", path.read_text()):
            if name in KNOWN and " if " not in value and not value.startswith("__"):
                found.append((name, value if value.startswith("omit") else yaml.safe_load(value)))
    assert len({name for name, _ in found}) > 25
    # Empty and omitted mean "chosen elsewhere".
    elsewhere = ("omit", "omit, true", "", 0, [], {})
    assert [(name, value) for name, value in found if value not in (*elsewhere, KNOWN[name].default)] == []


def test_defaults_of_the_cluster_stand_nowhere_else():
    cluster = "|".join(SPECS[""]["all"]["options"])
    for path in [*PROJECT.glob("playbooks/**/*.yml"), *PROJECT.glob("roles/**/*.yml"), PROJECT / "launch.yml"]:
        again = re.findall(rf"(?:{cluster})['\])]* \| d(?:efault)?\(.*", path.read_text())
        assert again == [], path


def test_paths_that_modules_assume_are_the_defaults_of_the_cluster():
    cluster = [str(option.get("default")) for option in SPECS[""]["all"]["options"].values()]
    assumed = {
        (path.name, found)
        for path in PROJECT.glob("library/*.py")
        for found in re.findall(r'"default": "(/(?:opt|var/lib)/[^"]*)"', path.read_text())
    }
    assert len(assumed) > 3
    folders = tuple(f"{default}/" for default in cluster if default.startswith("/"))
    assert [(name, found) for name, found in assumed if not f"{found}/".startswith(folders)] == []


def tables():
    """Yield the names and the cell of defaults of each row in tables of variables."""
    for path in [PROJECT / "README.md", *PROJECT.glob("docs/*.md"), *PROJECT.glob("roles/*/README.md")]:
        has_defaults = False
        for line in path.read_text().splitlines():
            cells = [cell.strip() for cell in line.strip().strip("|").split(" | ")]
            if not line.startswith("|"):
                has_defaults = False
            elif cells[0] == "variable":
                has_defaults = len(cells) > 2 and "default" in cells[1]
            elif has_defaults and not line.startswith("|---"):
                yield path, re.findall(r"`([a-z]+(?:_\w+)+)`", cells[0]), cells[1] if len(cells) > 1 else ""


def test_documents_name_the_defaults_that_hold():
    compared, wrong = 0, []
    for path, names, cell in tables():
        texts = [text for text in re.split(r", (?![^\[{]*[\]}])", cell) if text]
        assert all(name in KNOWN for name in names), (path.name, names)
        for name, text in zip(names, texts if len(texts) == len(names) else []):
            literal = re.fullmatch(r"`([^`]*)`|(-?[\d.]+)", text)
            # Without a default of its own the scheduler, the stack or the hardware chooses.
            if literal and KNOWN[name].default not in ("", None):
                value = literal[1] if literal[1] is not None else literal[2]
                default = KNOWN[name].default
                value = re.sub(r"<(\w+)>", r"{{ \1 }}", value)
                if default not in (yaml.safe_load(value), value) and value != str(default):
                    wrong.append((path.name, name, text, default))
                compared += 1
    assert wrong == []
    assert compared > 30


DOCUMENTS = ("*.md", "docs/*.md", "roles/*/README.md", "playbooks/*.yml", "launch.yml")


def test_options_that_documents_show_are_accepted():
    shown = set()
    for path in (path for pattern in DOCUMENTS for path in PROJECT.glob(pattern)):
        for quoted, plain in re.findall(r" -e (?:'([a-z]\w+=[^']*)'|([a-z]\w+=[^'`\s]*))", path.read_text()):
            shown.add((path.name, quoted or plain.rstrip(".,;:)")))
    assert len(shown) > 30
    for name, option in sorted(shown):
        variable, _, value = option.partition("=")
        if variable == "lr":
            continue
        assert variable in KNOWN, (name, option)
        if not value.startswith("{{") and not re.fullmatch(r"[A-Z]+|\.\.\.|", value):
            _, findings = input_variables.converted({variable: value}, lambda _: COMMAND_LINE, KNOWN, yaml.safe_load)
            assert findings == [], (name, option)


def test_a_playbook_takes_known_choices_and_no_negative_numbers():
    """Ansible checks the choices; a number has none."""
    options = input_variables.options_of_playbooks(SPECS[""])
    assert "running" in options["jobs_state"]["choices"] and "default" not in options["jobs_days"]
    assert "job_timeout" not in options and "jobs_days" in options
    assert input_variables.negative("jobs_days", -3.0, COMMAND_LINE).found == "-3.0 on the command line"


def test_every_text_is_one():
    for name in of_kind("str", "path"):
        assert convert(name, 7) == "7" and convert(name, "a b") == "a b" and convert(name, "") == ""
        for value in (["a", "b"], {"a": 1}, True, "  "):
            assert refused(name, value).expected == "a text"
        assert refused(name, "/caf\udce9").expected == "text in UTF-8"


def test_a_text_in_a_list_is_what_the_advice_writes():
    action = refused("job_hosts", ["n1"], FILE).action.removeprefix("write ")
    assert convert("job_hosts", yaml.safe_load(action)["job_hosts"]) == "n1"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("job_partition", "gpu"), ("job_namespace", "a"), ("job_rank_table", "t.json"),
        ("job_oneflow_style", "address_list"), ("job_mpi_parameters", {"a": "1"}), ("job_join_timeout", 9),
        ("job_busy_devices", "wait"),
    ],
)  # fmt: skip
def test_the_advice_for_a_variable_that_nothing_reads_makes_it_read(name, value):
    chosen = {"job_launcher": "torchrun", "job_scheduler": "slurm" if name == "job_busy_devices" else "ssh"}
    finding = job_file.unread(name, value, chosen, FILE)
    setting, _, instead = re.fullmatch(r"set (\w+)(: )(\w+), or leave \w+ out", finding.action).groups()
    assert job_file.unread(name, value, {**chosen, setting: instead}, FILE) is None
    assert job_file.unread(name, KNOWN[name].default, chosen, FILE) is None
