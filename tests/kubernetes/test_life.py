"""The life of a job: applied, watched, logged, removed. Also against a real cluster, where one is given."""

import json


def test_a_job_is_applied_watched_logged_and_removed(cluster):
    run = cluster.launch(job_secret_env={"TOKEN": "a-secret-value"}).expect(0, "succeeded in")
    summary = run.summary
    assert (summary["state"], summary["world_size"], len(summary["nodes"])) == ("succeeded", 2, 2)
    assert summary["metrics"]["step"] == 3
    assert sorted(path.name for path in (run.folder / "logs").iterdir()) == ["rank_0.log", "rank_1.log"]
    assert "step 3/3" in (run.folder / "logs" / "rank_0.log").read_text()
    metrics = [json.loads(line) for line in (run.folder / "metrics.jsonl").read_text().splitlines()]
    assert [point["step"] for point in metrics] == [1, 2, 3]
    assert metrics[0]["elapsed_s"] < metrics[2]["elapsed_s"]
    kept = [path for path in cluster.runs.rglob("*") if path.is_file() and b"a-secret-value" in path.read_bytes()]
    assert kept == []
    assert "a-secret-value" not in run.output

    brought = run.folder / "logs" / "rank_1.log"
    brought.unlink()
    assert cluster.play("playbooks/logs.yml").rc == 0
    assert "step 3/3" in brought.read_text()

    stopped = cluster.play("playbooks/stop.yml", job_name="digits").expect(0)
    assert stopped.summary["state"] == "succeeded", "a job that had ended is not stopped"
    if cluster.api:
        assert cluster.api.objects == {}


def test_a_rank_that_fails_is_named(cluster):
    if cluster.api:
        cluster.api.course = "fails"
    run = cluster.launch(job_command=["python", "train.py", "3"])
    assert run.rc != 0
    failure = run.summary["failure"]
    assert (run.summary["state"], failure["kind"], failure["rank"]) == ("failed", "exit", 1)
    assert "rank 1 on" in run.text
    assert "failed first" in run.text
    if not cluster.api:
        assert cluster.play("playbooks/stop.yml", job_name="digits").rc == 0


def test_a_running_job_is_stopped_and_nothing_is_left(cluster):
    if cluster.api:
        cluster.api.course = "runs"
    run = cluster.launch(job_wait=False, job_command=["python", "-c", "import time; time.sleep(200)"])
    run.expect(0, "not waiting for its end")
    stopped = cluster.play("playbooks/stop.yml", job_name="digits").expect(0)
    assert stopped.summary["state"] == "stopped"
    assert {node["state"] for node in stopped.summary["nodes"]} <= {"ended"}
    if cluster.api:
        assert cluster.api.objects == {}


def test_a_job_that_nobody_waited_for_is_looked_at_and_watched_later(cluster):
    run = cluster.launch(job_wait=False).expect(0)
    assert not (run.folder / "summary.json").exists()
    looked = cluster.play("playbooks/status.yml").expect(0)
    assert looked.summary["state"] in ("pending", "running", "succeeded")
    watched = cluster.play("playbooks/watch.yml").expect(0, "succeeded in")
    assert watched.summary["state"] == "succeeded"
    if not cluster.api:
        assert cluster.play("playbooks/stop.yml", job_name="digits").rc == 0
