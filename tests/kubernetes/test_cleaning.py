"""playbooks/clean.yml removes the objects of ended jobs only."""


def test_objects_of_ended_jobs_are_removed(fake):
    fake.api.course = "runs"
    run = fake.launch(job_wait=False, job_secret_env={"TOKEN": "x"})
    assert run.rc == 0, run.output
    job_id = run.folder.name
    before = set(fake.api.objects)
    assert {kind for kind, _ in before} >= {"jobs", "services", "configmaps", "secrets"}

    named = fake.play("playbooks/clean.yml", job_id=job_id)
    assert named.rc != 0
    assert f"{job_id} runs on Kubernetes" in named.text
    old = fake.play("playbooks/clean.yml", clean_days=0)
    assert old.rc == 0, old.output
    assert "Nothing to remove." in old.text
    assert set(fake.api.objects) >= before

    # Nobody looks while it ends.
    fake.api.course = "ended"
    fake.api.advance()
    checked = fake.play("playbooks/clean.yml", "--check", clean_days=0)
    assert checked.rc == 0, checked.output
    assert "Would remove the objects of 1 job" in checked.text
    assert f"{job_id} on Kubernetes" in checked.text
    assert set(fake.api.objects) >= before
    cleaned = fake.play("playbooks/clean.yml", clean_days=0)
    assert cleaned.rc == 0, cleaned.output
    assert "Removed the objects of 1 job" in cleaned.text
    assert fake.api.objects == {}
    assert (run.folder / "manifest.yml").exists(), "what is on the controller stays"

    asked = len(fake.api.requests)
    again = fake.play("playbooks/clean.yml", clean_days=0)
    assert "Nothing to remove." in again.text
    assert len(fake.api.requests) == asked, "of a job that is gone nobody is asked again"


def test_jobs_with_unknown_state_stay(fake):
    fake.api.course = "ended"
    assert fake.launch().rc == 0
    fake.api.denied = {("list", "pods")}
    before = set(fake.api.objects)
    run = fake.play("playbooks/clean.yml", clean_days=0)
    assert run.rc == 0, run.output
    assert "stays: The state of the job cannot be read from the cluster" in run.text
    assert "pods is forbidden" in run.text
    assert set(fake.api.objects) == before

    # Nor is what is known of them lost: it is told, with why the cluster says nothing.
    [record] = fake.runs.glob("*/summary.json")
    written = record.read_bytes()
    told = fake.play("playbooks/status.yml", job_name="digits")
    assert told.rc == 0, told.output
    assert f"Job {record.parent.name} succeeded in" in told.text
    assert "kubernetes could not be asked: The state of the job cannot be read from the cluster" in told.text
    assert fake.play("playbooks/stop.yml", job_name="digits").rc == 2, "nobody knows whether something is left"
    assert record.read_bytes() == written
