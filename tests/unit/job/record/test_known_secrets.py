"""Secrets whose values are known are masked in what ranks print, wherever it is read."""

import base64
import io
import json
import mmap
from urllib.parse import quote

import pytest
from ansible.module_utils.trainyard.job.record import masking
from ansible.module_utils.trainyard_node.job.record import secrets as log_secrets
from ansible.module_utils.trainyard_node.job.run import job_folder
from ansible.module_utils.trainyard_node.job.run.evidence.log_tail import Tail
from ansible.module_utils.trainyard_node.job.run.evidence.rank_failures import Failures

VALUE = 'p"ss/w\u00f6rd 1'
KEY = "-----BEGIN KEY-----\nMIIEvQIBADANBg\nkqhkiG9w0BAQEF\n-----END KEY-----"


def forms(*values, **more):
    return masking.forms({"secret_env": dict(enumerate(values)), **more})


def masked(text, *values):
    return masking.mask(text.encode(), forms(*values)).decode()


@pytest.mark.parametrize(
    "printed",
    [
        VALUE,
        json.dumps({"KEY": VALUE}),
        str({"KEY": VALUE}),
        f"https://x/?key={quote(VALUE, safe='')}",
        f"https://x/{quote(VALUE)}",
        base64.b64encode(VALUE.encode()).decode(),
    ],
)
def test_a_value_is_masked_in_each_form_that_programs_print(printed):
    text = masked(f"before {printed} after", VALUE)
    assert len(text.encode()) == len(f"before {printed} after".encode())
    assert text.startswith("before ") and text.endswith(" after") and "*******" in text
    assert not any(form.decode() in text for form in forms(VALUE))


def test_lines_parts_and_overlaps_of_values_are_masked():
    assert set(masked(KEY, KEY)) == {"*"}
    assert masked("2026 MIIEvQIBADANBg", KEY) == "2026 **************"
    assert masking.mask(b"a-long-token", forms(**{"token": "a-long-token"})) == b"*" * 12
    assert masked("a secret-and-more b", "secret", "secret-and-more") == "a *************** b"
    # A value that is not yet written to its end; four letters are in any text.
    assert masked("KEY=hunter", "hunter2") == "KEY=******"
    assert masked("KEY=hunt", "hunter2") == "KEY=hunt"
    # Short values are words of any text.
    assert masked("epoch 1 of 5", "1", "of", "epoch") == "epoch 1 of 5"
    assert forms("12345") == ()


@pytest.mark.parametrize("begin", range(4, 12))
def test_a_value_is_masked_wherever_reading_begins(begin):
    log = io.BytesIO(b"KEY=hunter2\n")
    read = log_secrets.read_masked(log, begin, 100, forms("hunter2"))
    assert read == b"KEY=*******\n"[begin:]


def test_logs_are_masked_in_place_and_keep_their_length(tmp_path):
    logs = tmp_path / "logs"
    logs.mkdir()
    (logs / "rank_0.log").write_bytes(b"\xff KEY=hunter2 \r hunter2\n")
    (logs / "empty.log").touch()
    log_secrets.mask_logs(tmp_path, forms("hunter2"))
    assert (logs / "rank_0.log").read_bytes() == b"\xff KEY=******* \r *******\n"


def test_the_ends_of_a_very_long_log_are_masked(tmp_path, monkeypatch):
    monkeypatch.setattr(log_secrets, "MAX_BYTES", 100)
    monkeypatch.setattr(log_secrets, "FIRST_BYTES", 50)
    (tmp_path / "logs").mkdir()
    log, size = tmp_path / "logs" / "rank_0.log", 4 * mmap.ALLOCATIONGRANULARITY
    content = bytearray(b"." * size)
    for at in (10, size // 2, size - 20):
        content[at : at + 7] = b"hunter2"
    log.write_bytes(content)
    log_secrets.mask_logs(tmp_path, forms("hunter2"))
    written = log.read_bytes()
    assert (len(written), written.count(b"hunter2"), written.count(b"*******")) == (size, 1, 2)


def test_stacks_and_reports_of_a_monitor_are_masked(tmp_path, monkeypatch):
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "monitor_0.log").write_text("no room for hunter2")
    plan = {"job_id": "test-1", "processes": [], "secret_env": {"KEY": "hunter2"}}
    (tmp_path / "node_plan.json").write_text(json.dumps(plan))
    assert job_folder.monitor_output(tmp_path) == "no room for *******"
    monkeypatch.setattr(job_folder.stack_samples, "take", lambda *_, **__: ([], "main(key='hunter2')"))
    assert job_folder.take_stacks(tmp_path, 1)["text"] == "main(key='*******')"
    log = tmp_path / "logs" / "rank_0.log"
    log.write_text("the key is hunter2 today\n")
    assert Failures(tmp_path, {"host": "n1"}, forms("hunter2")).end_of(log) == "the key is ******* today\n"
    tail = Tail(tmp_path, "rank_0.log", "(?P<step>x)", hidden=forms("hunter2"))
    tail.read(0.0)
    assert tail.report()["last"] == "the key is ******* today"
