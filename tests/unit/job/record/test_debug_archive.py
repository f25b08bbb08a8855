"""A debug archive holds what explains a run, and no secret is left in any of its files."""

import base64
import json
import stat
import sys
import tarfile
from pathlib import Path
from urllib.parse import quote

import pytest
from ansible.module_utils.trainyard.base.findings import FindingsError
from ansible.module_utils.trainyard.base.redaction import HIDDEN, without_secrets
from ansible.module_utils.trainyard.report import debug_archive as contents
from ansible.module_utils.trainyard.report.debug_archive import Archive, Excerpt, json_text, log_text
from ansible.module_utils.trainyard_controller.job import debug_files
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from job_samples import make_job, make_plan, member, submitted

PROJECT = Path(__file__).resolve().parents[4]
sys.path.insert(0, str(PROJECT / "tests/fixtures/reports"))

from composed_job import summary  # noqa: E402

JOB_ID = "digits-20261121-200000"
# Where a secret may be in a log, with what stands around it.
PLACES = [
    "password={}", "HF_TOKEN: {}", '{{"api_key": "{}"}}', '"{{\\"db_password\\": \\"{}\\"}}"',
    "train.py --api-key {} --steps 5",
    "git clone https://me:{}@git.example/x", "GET /data?access_key={}&x=1", "Authorization: Bearer {}",
    "export MY_THING='a {} b'", "export MY_THING=a\"'\"{}",
    "-----BEGIN RSA PRIVATE KEY-----\nMII\n{}\n-----END RSA PRIVATE KEY-----",
    "\rstep 1/9\rsecret={}\r", 'config.json: {{"auths": {{"r.example": {{"auth": "{}"}}}}}}',
    "https://hooks.slack.com/services/{}", "https://s.example/b?X-Amz-Signature={}", "MYSQL_PWD={}",
]  # fmt: skip
# Forms that say by themselves that they are one.
TOKENS = ["hf_{}", "ghp_{}", "github_pat_{}", "glpat-{}", "sk-{}", "sk-proj-{}", "xoxb-{}", "eyJ{0}.eyJ{0}.{0}"]
RANDOM = st.text("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789", min_size=24, max_size=40)
VALUE = st.text("abcXYZ019_-+/=%\"'\\\u00e9 $&,;#@:", min_size=6, max_size=30).map(lambda text: f"Zq{text}Zq")
QUICK = settings(max_examples=50, deadline=None, suppress_health_check=list(HealthCheck))


@pytest.fixture
def short_logs(monkeypatch):
    """Show little of each log, as most of the time of a test goes into that; and call no git."""
    monkeypatch.setattr(contents, "LOG_BEGIN", 2000)
    monkeypatch.setattr(contents, "LOG_END", 3000)
    monkeypatch.setattr(debug_files.launch_record, "described", lambda folder: "v0")


def run_dir(folder, failed=True, **more):
    """A run of two nodes as launch.yml leaves it."""
    folder = folder / JOB_ID
    (folder / "logs").mkdir(parents=True, exist_ok=True)
    plan = make_plan(make_job(), [member(0), member(1)]).as_dict()
    write(folder, {**plan, "job_id": JOB_ID, **more}, "plan.json")
    write(folder, summary(2, failed=failed), "summary.json")
    (folder / "logs" / "rank_1.log").write_text("step 1\n")
    return folder


def write(folder, value, name):
    (folder / name).write_text(json.dumps(value))


def packed(folder, *values, facts=None, journals=None):
    answers = {host: {"facts": {}} for host in ("n1", "n2")} if facts is None else facts
    return debug_files.pack(folder, answers, journals or {}, PROJECT, contents.masks(values))


def printed(value):
    encoded = base64.b64encode(value.encode()).decode().rstrip("=")
    return {value, json.dumps(value)[1:-1], repr(value)[1:-1], quote(value, safe=""), encoded}


def secret_texts(value):
    return [value, json.dumps({"it": value}), repr([value]), f"x?y={quote(value, safe='')}", value.join("ab"),
            base64.b64encode(value.encode()).decode()]  # fmt: skip


@QUICK
@given(VALUE, st.integers(-60, 60))
@example('Zqp"ss/w\u00f6rd 1Zq', -3)
def test_no_known_secret_is_in_any_file(short_logs, tmp_path_factory, value, shift):
    texts = secret_texts(value)
    lines = "\n".join(texts)
    folder = run_dir(
        tmp_path_factory.mktemp("run"),
        launch={"job": {"job_env": {"NCCL_IT": value, value: "x"}, "job_command": texts}, value: texts},
        more={"env": [{"name": "NCCL_A", "value": value}, {"name": value}], "deep": [[{"a": texts}]]},
    )
    # The secret lies across each end of what is shown of a log.
    for at in (contents.LOG_BEGIN, -contents.LOG_END):
        content = bytearray(b"step 1 loss 0.5\n" * 1000)
        place = (at if at > 0 else len(content) + at) + shift
        content[place:place] = f"\n{lines}\n{value}".encode()
        (folder / "logs" / f"cut{at > 0}.log").write_bytes(content)
    (folder / "metrics.jsonl").write_text(f"{json.dumps({'a': value})}\n")
    (folder / "stacks-1.txt").write_text(lines)
    (folder / "findings.json").write_text(json.dumps(texts))
    archive = packed(
        folder,
        value,
        facts={
            "n1": {"facts": {"kernel": value}, "environments": {"v": {value: value}}},
            "n2": {"failed": True, "msg": lines},
        },
        journals={"n1": {"lines": texts, "problem": ""}},
    )
    assert len(archive.files) == 12 and "n2: " in archive.files["README"]
    for name, text in archive.files.items():
        assert [form for form in printed(value) if form in text] == [], name


@QUICK
@given(RANDOM, st.sampled_from(PLACES), st.integers(-80, 80))
def test_no_secret_in_its_usual_place_is_in_any_file(short_logs, tmp_path_factory, value, place, shift):
    text = place.format(value)
    folder = run_dir(tmp_path_factory.mktemp("run"), text=[text], content=f"a\n{text}\nb")
    content = bytearray(b"step 1 loss 0.5\n" * 1000)
    for at in (contents.LOG_BEGIN, len(content) - contents.LOG_END):
        content[at + shift : at + shift] = f"\n{text}\n".encode()
    (folder / "logs" / "rank_0.log").write_bytes(content)
    archive = packed(folder, journals={"n1": {"lines": [*text.splitlines(), "x"], "problem": text}})
    # Nor a half of it.
    halves = (value[:12], value[-12:])
    assert [name for name, shown in archive.files.items() for half in halves if half in shown] == []
    assert "step 1 loss 0.5" in archive.files["run/logs/rank_0.log"]


@QUICK
@given(RANDOM, st.sampled_from(TOKENS))
def test_tokens_of_known_forms_are_hidden_anywhere(value, form):
    assert without_secrets(f"see {form.format(value)} there") == f"see {HIDDEN} there"


def test_a_private_key_whose_begin_is_left_out_is_hidden():
    key = (
        b"".join(b"MIIEvQIBADANBgkqhkiG%d\n" % number for number in range(40)) + b"-----END PRIVATE KEY-----\nstep 9\n"
    )
    shown = log_text(Excerpt(b"step 1\n-----BEGIN PRIVATE KEY-----\nMIIEvQ\nMII", 9000, key), ())
    assert "MIIE" not in shown and shown.startswith("step 1\n") and shown.endswith("step 9\n")
    data = json_text(
        {"tail": ["step 1", "-----BEGIN PRIVATE KEY-----", "MIIEvQ", "-----END PRIVATE KEY-----", "step 2"]}, ()
    )
    assert json.loads(data) == {"tail": ["step 1", HIDDEN, "step 2"]}


@pytest.mark.parametrize("launcher", ["torchrun", "direct", "mindspore", "msrun"])
def test_of_what_a_plan_sets_itself_nothing_is_hidden(launcher, tmp_path):
    folder = run_dir(tmp_path)
    job = make_job(launcher=launcher, venv="/opt/trainyard/venvs/pytorch")
    write(folder, {**make_plan(job, [member(0), member(1)]).as_dict(), "job_id": JOB_ID}, "plan.json")
    archive = packed(folder)
    assert "VIRTUAL_ENV=/opt/trainyard/venvs/pytorch" in archive.files["run/plan.json"]
    assert archive.hidden == 0


def test_environments_keep_what_explains_failures():
    env = {"NCCL_DEBUG": "INFO", "MODE": "fast", "RANK": "0", "HF_TOKEN": "abc", "VIRTUAL_ENV": "/opt/venv"}
    shown = ["NCCL_DEBUG=INFO", f"MODE={HIDDEN}", "RANK=0", f"HF_TOKEN={HIDDEN}", "VIRTUAL_ENV=/opt/venv"]
    listed = [{"name": name, "value": value} for name, value in env.items()]
    data = {"env": env, "job_env": env, "containers": [{"env": listed}], "job_node_env": {"n1": env}}
    of_all = {"env": shown, "job_env": shown, "containers": [{"env": shown}], "job_node_env": {"n1": shown}}
    assert json.loads(json_text(data, ())) == of_all
    assert json.loads(json_text(["export NCCL_DEBUG=INFO MODE=fast\nexport MODE='a b'c"], ())) == [
        f"export NCCL_DEBUG=INFO MODE=fast\nexport MODE={HIDDEN}"
    ]
    assert json.loads(json_text({"argv": ["train.py", "--wandb-token", "abc", "--tokenizer", "bpe"]}, ())) == {
        "argv": ["train.py", "--wandb-token", HIDDEN, "--tokenizer", "bpe"]
    }


def test_which_variables_hold_secrets():
    given = {
        "job_secret_env": {"A": "value-a", "B": 123456},
        "job_registry_auth": {"username": "trainyard", "password": "value-c"},
        "job_events": [{"url": "https://h.example/services/T1/B2/xyz"}, {"command": ["/bin/tell"]}, "x"],
        "ansible_become_password": "value-d",
        "ansible_ssh_pass": "value-e",
        "site_api_token": ["value-f", None, True],
        "ansible_ssh_private_key_file": "/home/me/.ssh/id",
        "job_tokenizer": "bpe",
        "verify_busbw": 12,
    }
    webhook = {"https://h.example/services/T1/B2/xyz", "/services/T1/B2/xyz"}
    assert contents.secret_values(given) == {"value-a", "123456", "value-c", "value-d", "value-e", "value-f", *webhook}


def test_a_large_run_has_a_bound(monkeypatch):
    monkeypatch.setattr(contents, "MAX_FILE", 4000)
    monkeypatch.setattr(contents, "ROOM", {contents.LOGS: 10_000})
    archive = Archive()
    archive.add(contents.LOGS, [("a", "x" * 9000), ("b", "y" * 3900), ("c", "z" * 5000), ("d", "short")])
    assert list(archive.files) == ["a", "b", "d"] and archive.cut == ["a"]
    assert len(archive.files["a"]) <= 4000 and "bytes left out" in archive.files["a"]
    assert [text.partition(":")[0] for text in archive.left_out] == ["c"]
    text = contents.readme("j-1", "now", archive, {f"n{number}": "unreachable" for number in range(4000)})
    assert len(text.splitlines()) < 700 and "3700 more" in text and "\nLeft out\n  c: " in text


def test_the_log_of_the_failed_rank_comes_first_and_that_of_monitors_next():
    names = ["rank_0.log", "rank_1.log", "monitor_n1.log", "rank_2.log"]
    assert contents.important_logs(names, summary(2)) == ["rank_1.log", "monitor_n1.log", "rank_0.log", "rank_2.log"]
    assert contents.important_logs(names, {})[0] == "monitor_n1.log"


def test_the_nodes_that_failed_come_first_and_those_of_a_scheduler_have_no_units(tmp_path):
    folder = run_dir(tmp_path)
    plan = json.loads((folder / "plan.json").read_text())
    write(
        folder,
        {**summary(2), "failure": {"kind": "gone", "host": plan["nodes"][1]["host"], "reason": "x"}},
        "summary.json",
    )
    found = debug_files.visited(folder)
    assert found.hosts == [node["host"] for node in reversed(plan["nodes"])] and found.job_dir == plan["job_dir"]
    write(folder, {**plan, **submitted()}, "plan.json")
    assert debug_files.visited(folder).job_dir == ""


def test_silent_nodes_links_and_damaged_records_are_named(tmp_path):
    folder = run_dir(tmp_path)
    (folder / "report.json").write_text("{")
    (tmp_path / "private").write_text("mine")
    (folder / "logs" / "linked.log").symlink_to(tmp_path / "private")
    (folder / "other.txt").symlink_to(tmp_path / "private")
    facts = {"n1": {"facts": {}}, "n2": {"unreachable": True, "msg": "no route\nto host"}, "a/b": {}}
    archive = packed(folder, facts=facts, journals={"n1": {"failed": True, "msg": "no answer within 120 s"}})
    text = archive.files["README"]
    for line in (
        "n1: no answer within 120 s",
        "n2: no route to host",
        "a/b: --limit excludes it",
        "run/report.json: no JSON",
    ):
        assert f"\n  {line}" in text, text
    assert "mine" not in "".join(archive.files.values()) and "nodes/n2/facts.json" not in archive.files


def test_a_run_that_is_unknown_is_one_finding_with_the_known_ones(tmp_path):
    folder = run_dir(tmp_path)
    (tmp_path / "verify-1").mkdir()
    write(tmp_path / "verify-1", {}, "report.json")
    (tmp_path / "stopped-1").mkdir()
    write(tmp_path / "stopped-1", [], "findings.json")

    def found(**asked):
        return debug_files.find_run(tmp_path, *({"job_id": "", "job_name": "", "verification": ""} | asked).values())

    assert found(job_id=JOB_ID) == found() == folder and found(verification="verify-1").name == "verify-1"
    assert found(job_id="stopped-1").name == "stopped-1"
    for asked, known in (
        ({"job_id": "verify-1"}, JOB_ID),
        ({"job_id": "../x"}, "stopped-1"),
        ({"verification": JOB_ID}, "the newest: verify-1"),
        ({"job_id": "a", "verification": "b"}, "leave one of the two out"),
    ):
        with pytest.raises(FindingsError) as refused:
            found(**asked)
        [finding] = refused.value.failure["findings"]
        assert known in f"{finding['expected']} {finding['action']}"


def test_the_archive_is_its_owner_s_alone_and_replaced_whole(tmp_path):
    path = debug_files.target("", str(tmp_path), JOB_ID)
    assert path == tmp_path / f"trainyard-debug-{JOB_ID}.tar.gz"
    assert path == debug_files.target(str(tmp_path), "/proc/nowhere", JOB_ID)
    path.write_text("older")
    path.chmod(0o644)
    debug_files.write(path, JOB_ID, packed(run_dir(tmp_path)).files)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600 and {each.name for each in tmp_path.iterdir()} == {
        path.name,
        JOB_ID,
    }
    with tarfile.open(path) as tar:
        members = tar.getmembers()
        assert members[0].name == f"trainyard-debug-{JOB_ID}/README"
        assert {(each.mode, each.uid, each.uname) for each in members} == {(0o600, 0, "")}
        readme = tar.extractfile(members[0]).read().decode()
    assert all(each.name.partition("/")[2] in readme for each in members[1:])


@pytest.mark.parametrize("given", ["x.zip", "none/x.tar.gz"])
def test_a_file_that_cannot_be_the_archive_is_a_finding(tmp_path, given):
    with pytest.raises(FindingsError, match="a folder, or a name that ends with"):
        debug_files.target(given, str(tmp_path), JOB_ID)
