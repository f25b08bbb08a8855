"""Receivers of events: each rule of job_events, and no address in any text."""

import json

import pytest
from ansible.module_utils.trainyard.job.file import event_receivers
from hypothesis import given
from hypothesis import strategies as st
from job_samples import briefly, job_file, make_job, wrong

HOOK = "https://hooks.example.org/services/T0/B0/hunter2"
SECRET = {"events_secret": "hunter2-hunter2-hunter2"}
ALL = [
    {"url": HOOK, "form": "slack", "only": ["ended", "restart"]},
    {"url": "http://10.0.0.9:8080/in?key=hunter2", "ca_file": ""},
    {"command": ["/usr/local/bin/tell", "--token", "hunter2"]},
    {"file": "/data/events.jsonl"},
]


def test_the_plan_shows_no_address_and_no_argument_of_receivers():
    job = make_job(events=ALL, **SECRET)
    assert list(job.events.receivers) == [
        {"to": "webhook hooks.example.org", "only": ["ended", "restart"], "form": "slack", "ca_file": ""},
        {"to": "webhook 10.0.0.9", "only": [], "form": "json", "ca_file": ""},
        {"to": "command /usr/local/bin/tell", "only": [], "program": "/usr/local/bin/tell"},
        {"to": "file /data/events.jsonl", "only": [], "file": "/data/events.jsonl"},
    ]
    assert "hunter2" not in repr(job)


def test_the_head_gets_complete_receivers():
    given = job_file(events=ALL, **SECRET, events_interval=60)
    found = event_receivers.settings(given)
    assert (found["secret"], found["every_s"]) == ("hunter2-hunter2-hunter2", 60)
    assert [each["kind"] for each in found["receivers"]] == ["url", "url", "command", "file"]
    assert found["receivers"][0]["url"] == HOOK
    assert found["receivers"][2]["command"] == ["/usr/local/bin/tell", "--token", "hunter2"]
    assert event_receivers.settings(job_file()) is None


@pytest.mark.parametrize(
    ("receiver", "found", "action"),
    [
        ("hunter2", "none of url, command and file", "name one of them for each receiver"),
        ({"url": HOOK, "file": "/x"}, "url and file", "name one of them for each receiver"),
        ({"url": HOOK, "from": "json"}, "from beside url", "did you mean form?"),
        ({"file": "/x", "form": "json"}, "form beside file", "leave it out"),
        ({"url": HOOK, "form": "teams"}, "form: 'teams'", "correct form"),
        ({"url": HOOK, "only": ["end"]}, "only: ['end']", "correct only, or leave it out"),
        ({"url": HOOK, "ca_file": "ca.pem"}, "ca_file: 'ca.pem'", "correct ca_file"),
        ({"command": ["tell", "hunter2"]}, "no usable command", "write it as [/usr/local/bin/"),
        ({"file": "events.jsonl"}, "file: 'events.jsonl'", "write the whole path"),
    ],
)
def test_an_invalid_receiver_is_a_finding(receiver, found, action):
    (finding,) = wrong(events=[{"file": "/fine"}, receiver])
    assert (finding.check, finding.found) == ("job_events, receiver 2", found)
    assert finding.action.startswith(action) and "hunter2" not in str(finding)


@pytest.mark.parametrize(
    "url",
    [
        "hooks.example.org/hunter2", "ftp://example.org/hunter2", "https:///hunter2", "https://me:hunter2@example.org/",
        "https://example.org/a b", "https://example.org:hunter2/", "https://example.org/\nhunter2", 7, "https://[::1/hunter2",
    ],
)  # fmt: skip
def test_an_invalid_address_is_not_quoted(url):
    (finding,) = wrong(events=[{"url": url}])
    assert finding.found == "no usable url" and "hunter2" not in str(finding)


@pytest.mark.parametrize(
    ("changes", "check", "found"),
    [
        ({"events": "hunter2, b"}, "job_events", "a str"),
        ({"events": [{"file": "/x"}] * 17}, "job_events", "17 receivers"),
        ({"events_secret": "hunter2"}, "job_events_secret", "7 characters"),
        ({"metrics_folder": "metrics"}, "job_metrics_folder", "metrics"),
    ],
)
def test_other_invalid_variables_are_findings_without_a_secret(changes, check, found):
    (finding,) = wrong(**changes)
    assert briefly([finding]) == [("", check, found)] and "hunter2" not in str(finding)


def test_events_need_monitors():
    given = {"events": ALL, "metrics_folder": "/var/lib/trainyard-metrics"}
    for scheduler in ("slurm", "kubernetes"):
        assert make_job(scheduler=scheduler, **given).events.receivers
    findings = wrong(scheduler="kubernetes", launcher="mpirun", **given)
    assert [each.check for each in findings] == ["job_events", "job_metrics_folder"]
    assert all(each.expected.startswith("job_scheduler: ssh") for each in findings)
    assert "hunter2" not in str(findings)


words = st.one_of(st.none(), st.integers(), st.text(max_size=12), st.lists(st.text(max_size=5), max_size=3))
keys = st.sampled_from(["url", "command", "file", "only", "form", "ca_file", "x"])


@given(st.one_of(words, st.lists(st.one_of(words, st.dictionaries(keys, words)), max_size=4)))
def test_anything_is_receivers_or_findings(value):
    findings = []
    found = event_receivers.receivers({"job_events": value}, findings)
    assert findings or len(found) == len(value or [])
    assert len(json.loads(json.dumps(event_receivers.shown(found)))) == len(found)
