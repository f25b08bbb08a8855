"""playbooks/clean.yml: what a job has in the cluster goes when it has ended, never before, and not twice."""


def test_what_an_ended_job_left_goes_and_what_runs_stays(stand_in):
    stand_in.api.course = "runs"
    run = stand_in.launch(job_wait=False, job_secret_env={"TOKEN": "x"})
    assert run.rc == 0, run.output
    job_id = run.folder.name
    before = set(stand_in.api.objects)
    assert {kind for kind, _ in before} >= {"jobs", "services", "configmaps", "secrets"}

    named = stand_in.play("playbooks/clean.yml", job_id=job_id)
    assert named.rc != 0
    assert f"{job_id} runs on Kubernetes" in named.text
    old = stand_in.play("playbooks/clean.yml", clean_days=0)
    assert old.rc == 0, old.output
    assert "Nothing to remove." in old.text
    assert set(stand_in.api.objects) >= before

    # Nobody looks while it ends.
    stand_in.api.course = "ended"
    stand_in.api.advance()
    checked = stand_in.play("playbooks/clean.yml", "--check", clean_days=0)
    assert checked.rc == 0, checked.output
    assert "Would remove the objects of 1 job" in checked.text
    assert f"{job_id} on Kubernetes" in checked.text
    assert set(stand_in.api.objects) >= before
    cleaned = stand_in.play("playbooks/clean.yml", clean_days=0)
    assert cleaned.rc == 0, cleaned.output
    assert "Removed the objects of 1 job" in cleaned.text
    assert stand_in.api.objects == {}
    assert (run.folder / "manifest.yml").exists(), "what is on the controller stays"

    asked = len(stand_in.api.requests)
    again = stand_in.play("playbooks/clean.yml", clean_days=0)
    assert "Nothing to remove." in again.text
    assert len(stand_in.api.requests) == asked, "of a job that is gone nobody is asked again"


def test_a_cluster_that_says_nothing_keeps_its_jobs(stand_in):
    stand_in.api.course = "ended"
    assert stand_in.launch().rc == 0
    stand_in.api.denied = {("list", "pods")}
    before = set(stand_in.api.objects)
    run = stand_in.play("playbooks/clean.yml", clean_days=0)
    assert run.rc == 0, run.output
    assert "stays: The cluster does not say how the job is" in run.text
    assert "pods is forbidden" in run.text
    assert set(stand_in.api.objects) == before

    # Nor is what is known of them lost: it is told, with why the cluster says nothing.
    [record] = stand_in.runs.glob("*/summary.json")
    written = record.read_bytes()
    told = stand_in.play("playbooks/status.yml", job_name="digits")
    assert told.rc == 0, told.output
    assert f"Job {record.parent.name} succeeded in" in told.text
    assert "kubernetes could not be asked: The cluster does not say how the job is" in told.text
    assert stand_in.play("playbooks/stop.yml", job_name="digits").rc == 2, "nobody knows whether something is left"
    assert record.read_bytes() == written
