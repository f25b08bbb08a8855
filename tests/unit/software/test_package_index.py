"""Packages of an index, read from pip's output."""

import sys
from pathlib import Path

import pytest
from ansible.module_utils.trainyard.software import package_index
from ansible.module_utils.trainyard.software.requirements import parse
from ansible.module_utils.trainyard_node.software.index_queries import query

OUTPUTS = Path(__file__).resolve().parents[2] / "fixtures/pip"


def judged(pin, offered):
    return package_index.check(parse(pin, (3, 11)), offered, "the index", "Python 3.11 on x86_64", "pytorch")


FOUND = package_index.read_offered(0, (OUTPUTS / "found.out").read_text(), "")


def test_an_offered_version_is_no_finding():
    for pin in ("torch==2.13.0", "torch==2.13.0+cpu", "torch==2.12.1"):
        assert judged(pin, FOUND) is None


def test_another_build_is_named_with_what_there_is_and_which_variables_help():
    finding = judged("torch==2.13.0+cu126", FOUND)
    assert finding.found == "the index has 2.13.0+cpu, 2.12.1 for Python 3.11 on x86_64"
    assert "pytorch_builds_url, pytorch_index_url, pytorch_extra_index_urls, pytorch_find_links" in finding.action


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("refused", "does not answer: Connection refused"),
        ("not_trusted", "pip trusts no http of another machine"),
        ("nothing", "the index has none at all for Python 3.11 on x86_64"),
    ],
)
def test_an_index_without_an_answer_or_wheels_is_a_finding(name, text):
    errors = (OUTPUTS / f"{name}.err").read_text()
    finding = judged("torch==2.13.0", package_index.read_offered(1, "", errors))
    assert text in finding.found and "pytorch_index_url" in finding.action


@pytest.mark.parametrize(
    ("status", "output", "errors"),
    [(2, "", "no such option: --pre"), (0, "torch (2.12.1)", ""), (0, "", ""), (1, "", "Traceback")],
)
def test_a_failure_of_pip_is_no_finding(status, output, errors):
    assert judged("torch==2.13.0", package_index.read_offered(status, output, errors)) is None


def test_the_pip_of_an_older_python_is_understood(tmp_path):
    """A controller that has the collection in an environment of Debian 12 has pip 23.0.1."""
    pip = tmp_path / "pip.py"
    pip.write_text(
        "import sys\n"
        "known = ('index', 'versions', '--pre', '--', 'torch')\n"
        "unknown = [word for word in sys.argv[1:] if word not in known]\n"
        "sys.exit(f'no such option: {unknown[0]}') if unknown else "
        f"print({(OUTPUTS / 'found.out').read_text()!r})\n"
    )
    offered = query([sys.executable, str(pip)], "torch", ["--pre"], {})
    assert offered.known and offered.versions == ("2.13.0+cpu", "2.12.1")


def test_many_versions_are_counted():
    offered = package_index.Offered(tuple(f"1.{number}" for number in range(20)))
    assert "1.7, ... (12 more)" in judged("torch==2.13.0", offered).found


def test_sources_of_pip_are_shown_without_passwords():
    mirror = "https://me:secret@mirror.example.org/simple"
    text = package_index.where(mirror, ["https://b.example.org"], ["/wheels"], False)
    assert text == "https://***@mirror.example.org/simple and https://b.example.org and /wheels"
    assert package_index.where("", [], [], False) == "the index of pip's own configuration there"
    assert package_index.where("https://a", ["https://b"], ["/wheels"], True) == "/wheels"


def test_a_dependency_for_which_pip_finds_nothing_is_named_with_what_needs_it():
    error = "ERROR: Could not find a version that satisfies the requirement {} (from versions: 4.13.2)\n"
    needed = package_index.without_candidate(error.format("antlr4_python3_runtime==4.9.* (from hydra-core)"))
    assert needed == ("antlr4-python3-runtime", "antlr4_python3_runtime==4.9.*", "hydra-core")
    assert package_index.without_candidate(error.format("torch==9")) is None
    for archives in (True, False):
        finding = package_index.of_dependency(*needed, "the index", "Python 3.12", "pytorch", archives)
        assert ("--no-binary=antlr4-python3-runtime" in finding.action) is archives
