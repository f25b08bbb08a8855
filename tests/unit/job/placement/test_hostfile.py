"""Hostfiles: each notation, each error with its line, any text; and the module with real files."""

import json

import mpi_hostfile
import pytest
from ansible.module_utils.testing import patch_module_args
from ansible.module_utils.trainyard.job.placement.hostfile import FLAVORS, MpiHost, faults, parse, render
from hypothesis import given
from hypothesis import strategies as st

names = st.one_of(st.from_regex(r"[a-z0-9]([a-z0-9.-]{0,10}[a-z0-9])?", fullmatch=True), st.ip_addresses(v=4).map(str))
counts = st.integers(1, 999_999_999)


@st.composite
def hostfiles(draw):
    """Draw a flavor, and hosts that it can express."""
    flavor = draw(st.sampled_from(FLAVORS))
    hosts = []
    for name in draw(st.lists(names, unique=True, max_size=8)):
        slots = draw(counts if flavor == "deepspeed" else st.none() | counts)
        most = draw(st.none() | st.integers(slots or 1, 999_999_999)) if flavor == "openmpi" else None
        hosts.append(MpiHost(name, slots, most))
    return flavor, hosts


@given(hostfiles())
def test_a_written_hostfile_is_read_back(given_hosts):
    flavor, hosts = given_hosts
    assert parse(render(hosts, flavor)) == (hosts, {})


@given(st.sampled_from(["openmpi", "deepspeed"]), st.lists(st.ip_addresses(v=6).map(str), unique=True))
def test_ipv6_addresses_are_not_taken_for_a_name_with_slots(flavor, addresses):
    # No host has an address that ends in `::`.
    hosts = [MpiHost(address, 4) for address in addresses if address[0] != ":" and address[-1] != ":"]
    assert parse(render(hosts, flavor)) == (hosts, {})


@given(st.text())
def test_any_text_can_be_read(text):
    hosts, problems = parse(text)
    assert faults(hosts, "openmpi") == []
    assert all(1 <= line <= text.count("\n") + 1 and all(wrong) for line, wrong in problems.items())


@given(st.lists(st.sampled_from(["n1", "n2:3", "slots", "=", "4", " ", "\t", "#", "max_slots", ":", "0", "-1", "\n"])))
def test_texts_that_are_nearly_hostfiles_can_be_read(parts):
    hosts, _ = parse("".join(parts))
    assert parse(render(hosts, "openmpi")) == (hosts, {})


def test_notations():
    text = "# rack 1\n\nn1\tslots=4   # the head\n  n2 slots = 4 max-slots=8\r\nn3 max_slots=2\nn4:6\n10.0.0.5\n"
    hosts = [MpiHost("n1", 4), MpiHost("n2", 4, 8), MpiHost("n3", None, 2), MpiHost("n4", 6), MpiHost("10.0.0.5")]
    assert parse(text) == (hosts, {})
    assert render(hosts[1:3], "openmpi") == "n2 slots=4 max_slots=8\nn3 max_slots=2\n"
    assert render([MpiHost("10.0.0.1", 8), MpiHost("n3")], "mpich") == "10.0.0.1:8\nn3\n"
    assert render([MpiHost("10.0.0.1", 8)], "deepspeed") == "10.0.0.1 slots=8\n"
    # A name that stands several times has as many slots.
    assert parse("n1\nn2 // the spare\nn1 # again\nn1\n") == ([MpiHost("n1", 3), MpiHost("n2")], {})


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("n1 slots=2", "n1 is in line 1 already"),
        *((f"n2{slots}", "n2: slots is 0; expected 1 or more") for slots in (" slots=0", ":0")),
        ("n2 max-slots=0", "n2: max_slots is 0; expected 1 or more"),
        ("n2 slots=4 max_slots=2", "n2: max_slots 2 is less than slots 4"),
        ("n2 slot=4", "unknown key 'slot'; expected slots or max_slots"),
        *((f"n2 {word}", f"stray word '{word}'") for word in ("4", "slots")),
        *((f"n2 slots={text}", f"slots '{text}' is no number of processes") for text in ("", "-1", "four", "9" * 5000)),
        ("n2:", "slots '' is no number of processes"),
        *((line, "slots twice") for line in ("n2 slots=1 slots=2", "n2:2 slots=2")),
        *((name, f"'{name}' is no host name or address") for name in ("n2,n3", "slots=4")),
    ],
)
def test_each_problem_has_its_line(line, problem):
    hosts, problems = parse(f"n1\n# remark\n{line}\nn9 slots=1\n")
    assert (hosts, problems) == ([MpiHost("n1"), MpiHost("n9", 1)], {3: [problem]})


def test_all_faults_are_found_at_once():
    _, problems = parse("n1 slots=0 rank=3\nn1\nn1\n")
    assert {line: len(texts) for line, texts in problems.items()} == {1: 2, 2: 1, 3: 1}


@pytest.mark.parametrize(
    ("flavor", "host", "fault"),
    [
        ("openmpi", MpiHost("n1", 0), "n1: slots is 0; expected 1 or more"),
        ("openmpi", MpiHost("a b", 1), "'a b' is no host name or address"),
        ("openmpi", MpiHost("", 1), "'' is no host name or address"),
        ("mpich", MpiHost("n1", 1, 2), "n1: max_slots, which only Open MPI knows"),
        ("deepspeed", MpiHost("n1"), "n1: no slots, without which DeepSpeed refuses the file"),
        ("mpich", MpiHost("fd00::1", 2), "fd00::1: MPICH takes what follows a colon for the number of processes"),
    ],
)
def test_settings_that_a_flavor_lacks_are_not_written(flavor, host, fault):
    with pytest.raises(ValueError, match="n9: named twice") as refused:
        render([host, MpiHost("n9", 1), MpiHost("n9", 1)], flavor)
    assert str(refused.value) == f"{fault}; n9: named twice"


@pytest.fixture
def call(capsys, tmp_path):
    def run(check=False, **params):
        path = tmp_path / "hostfile"
        with patch_module_args({"path": str(path), "_ansible_check_mode": check, **params}), pytest.raises(SystemExit):
            mpi_hostfile.main()
        return json.loads(capsys.readouterr().out), path

    return run


HOSTS = [{"name": "10.0.0.1", "slots": 2}, {"name": "10.0.0.2", "slots": 2, "max_slots": 4}]


def test_a_hostfile_is_written_once(call):
    planned, path = call(hosts=HOSTS, check=True)
    assert planned["changed"] and not path.exists()
    assert planned["diff"]["after"] == "10.0.0.1 slots=2\n10.0.0.2 slots=2 max_slots=4\n"
    done, _ = call(hosts=HOSTS)
    assert done["changed"] and path.read_text() == done["diff"]["after"] == planned["diff"]["after"]
    assert path.stat().st_mode & 0o777 == 0o644
    assert not call(hosts=HOSTS)[0]["changed"]
    assert not call(hosts=HOSTS, check=True)[0]["changed"]
    again, _ = call(hosts=HOSTS[:1], flavor="mpich", mode="0600")
    assert again["diff"]["before"] == done["diff"]["after"] and path.read_text() == "10.0.0.1:2\n"
    assert path.stat().st_mode & 0o777 == 0o600
    assert call(hosts=HOSTS[:1], flavor="mpich", mode="0640")[0]["changed"]


def test_a_file_that_differs_is_left_where_it_may_not_be_overwritten(call):
    assert call(hosts=HOSTS, overwrite=False)[0]["changed"]
    assert not call(hosts=HOSTS, overwrite=False)[0]["changed"]
    refused, path = call(hosts=HOSTS[:1], overwrite=False)
    assert refused["failed"] and f"found     {path} is there and differs" in refused["msg"]
    assert len(path.read_text().splitlines()) == 2


def test_a_hostfile_is_removed_once(call):
    _, path = call(hosts=HOSTS)
    planned, _ = call(state="absent", check=True)
    assert planned["changed"] and path.exists()
    assert call(state="absent")[0]["changed"] and not path.exists()
    assert not call(state="absent")[0]["changed"]


def test_a_hostfile_is_read_with_its_faults(call, tmp_path):
    (tmp_path / "hostfile").write_bytes(b"# \xff\nn1 slots=2\nn1 cpus=3\n")
    read, _ = call(state="parsed")
    assert read["hosts"] == [{"name": "n1", "slots": 2, "max_slots": None}]
    assert [each["line"] for each in read["problems"]] == [3, 3]
    assert not read["changed"]


def test_invalid_arguments_of_the_module(call):
    refused, path = call(hosts=[{"name": "n1", "slots": 0}, {"name": "n1"}])
    assert refused["msg"].startswith(f"{path} was not written: n1: slots is 0; expected 1 or more; n1: named twice")
    assert "no hosts" in call(hosts=[])[0]["msg"] and "hosts" in call()[0]["msg"]
    assert call(state="parsed")[0]["msg"].startswith(f"no {path}")
    path.mkdir()
    assert call(state="parsed")[0]["msg"].startswith(f"{path} cannot be read: Is a directory")


def test_only_blanks_of_ascii_separate_words():
    hosts, problems = parse("n1\u00a0slots=2\n")
    assert hosts == [] and "is no host name" in problems[1][0]
