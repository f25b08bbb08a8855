"""playbooks/clean.yml removes the objects of ended jobs only."""


def test_objects_of_ended_jobs_are_removed(fake):
    fake.api.course = "runs"
    run = fake.launch(job_wait=False, job_secret_env={"TOKEN": "x"}).expect(0)
    before = set(fake.api.objects)
    assert {kind for kind, _ in before} >= {"jobs", "services", "configmaps", "secrets"}

    fake.play("playbooks/clean.yml", clean_days=0).expect(0, "Nothing to remove.")
    assert set(fake.api.objects) >= before

    # Nobody looks while it ends.
    fake.api.course = "ended"
    fake.api.advance()
    would = "Would remove the objects of 1 job"
    fake.play("playbooks/clean.yml", "--check", clean_days=0).expect(0, would, f"{run.folder.name} on Kubernetes")
    assert set(fake.api.objects) >= before
    fake.play("playbooks/clean.yml", clean_days=0).expect(0, "Removed the objects of 1 job")
    assert fake.api.objects == {}
    assert (run.folder / "manifest.yml").exists(), "what is on the controller stays"


def test_jobs_with_unknown_state_stay(fake):
    fake.api.course = "ended"
    assert fake.launch().rc == 0
    fake.api.denied = {("list", "pods")}
    before = set(fake.api.objects)
    fake.play("playbooks/clean.yml", clean_days=0).expect(
        0, "stays: The state of the job cannot be read from the cluster", "pods is forbidden"
    )
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
