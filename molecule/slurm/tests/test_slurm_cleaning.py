"""playbooks/clean.yml with Slurm: folders of jobs that it has ended go, those of jobs that it runs stay."""

from lab_jobs import WORKER

SLURM = {"job_scheduler": "slurm", "job_nodes": 2}


def test_folders_of_ended_jobs_go_and_those_of_a_running_one_stay(play, nodes):
    ended = play.launch(WORKER, **SLURM, job_command=["python3", "worker.py", "--steps", "3"]).wait().expect(0)
    runs = play.launch(WORKER, **SLURM, job_wait=False).wait().expect(0)

    def has(job_id):
        folder = f"/var/lib/trainyard/jobs/{job_id}"
        return {name for name, node in nodes.items() if node.host.file(folder).is_directory}

    try:
        here = has(ended.job_id)
        assert here == {node["host"] for node in ended.summary["nodes"]}
        play("playbooks/clean.yml", job_id=runs.job_id).expect(2, f"found {runs.job_id} runs on ")
        checked = play("playbooks/clean.yml", "--check", job_id=ended.job_id)
        assert (checked.rc, has(ended.job_id)) == (0, here), checked.output
        assert "Would remove the folders of 1 job" in checked.text
        cleaned = play("playbooks/clean.yml", clean_days=0).expect(0)
        assert has(ended.job_id) == set()
        assert runs.job_id not in cleaned.output
    finally:
        assert play("playbooks/stop.yml", job_id=runs.job_id).rc == 0
    assert play("playbooks/clean.yml", job_id=runs.job_id).rc == 0
    assert has(runs.job_id) == set()
