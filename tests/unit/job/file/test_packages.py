"""job_packages: names, and the versions that a job needs."""

import pytest
from ansible.module_utils.trainyard.job.file.job_packages import fits, names
from job_samples import VENV, make_job, member, planned, wrong


@pytest.mark.parametrize(
    ("version", "needed", "expected"),
    [
        ("1.26.4", ">=1", True), ("1.26.4", ">=1.26,<2", True), ("2.0", "<2", False), ("2.0rc1", ">=2.0", False),
        ("2.0.0", "==2", True), ("2.5.1+cu124", "==2.5.1", True), ("2.5.1", "==2.5.*", True),
        ("2.5.1", "!=2.5.*", False),
        ("2.5.1", "~=2.4", True), ("3.0", "~=2.4", False), ("2.4.9", "~=2.4.1", True), ("2.5.0", "~=2.4.1", False),
        ("2.0.post1", ">2.0", False), ("2.0.dev3", "<2.0rc1", True), ("10.0", ">9", True), ("2.0rc2", ">2.0rc1", True),
        ("nightly", ">=1", False), ("nightly", "", True),
    ],
)  # fmt: skip
def test_versions_are_compared_as_pip_does(version, needed, expected):
    assert fits(version, needed) is expected


def test_a_job_names_versions_and_its_nodes_have_them():
    job = make_job(packages=["torch >=2, <3", "numpy"])
    assert job.packages == ("torch", "numpy") == names(["torch >=2, <3", "numpy"])
    job = make_job(packages=["torch>=99"])
    _, (finding,) = planned(job, [member(0, packages={"torch": "2.12.1"})])
    assert (finding.found, finding.expected) == (f"torch 2.12.1 in {VENV}", "torch >=99")
    assert planned(make_job(packages=["torch>=2"]), [member(0, packages={"torch": "2.12.1"})])[1] == []


@pytest.mark.parametrize("word", ["torch>=", "torch>=x", "torch=2", "a b", "-r x", ""])
def test_words_that_are_no_packages(word):
    assert wrong(packages=[word])[0].found == repr(word)


def test_another_scheduler_compares_names_alone():
    (finding,) = wrong(packages=["numpy>=1"], scheduler="kubernetes")
    assert finding.action == "write numpy"
    assert make_job(packages=["numpy"], scheduler="kubernetes").packages == ("numpy",)
