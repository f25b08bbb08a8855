"""What root leaves on a node from a launch, a restart, a question and a stop: what docs/security.md says, no more."""

import re

from lab_jobs import WORKER

STEPS = ["python3", "worker.py", "--resume", "--steps"]
# Files of other services of the host: journals, sshd's and systemd's own.
OTHERS = r"/var/(log|cache/private|lib/systemd|lib/slurm)/|/run/|/proc/|/sys/|/dev/|/root/\.ansible|/etc/mtab"


def written_by_root(node, since):
    """Files and folders of root, or with a mode that is root's to give, that are newer than a file."""
    look = f"find / -xdev -newercc {since} \\( -user root -o -group root -o -perm /6000 \\) -print 2>/dev/null"
    found = node.host.run(look).stdout.splitlines()
    return {path for path in found if not re.match(OTHERS, f"{path}/") and path != "/"}


def test_what_root_writes_is_what_is_documented(play, nodes):
    node = nodes["n2"]
    node.host.check_output("touch /root/.before && sync")
    run = play.launch(WORKER, job_name="roots", job_nodes=2, job_max_restarts=1, job_command=[*STEPS, "5000"]).trains()
    lasting = written_by_root(node, "/root/.before")
    node.kill_rank(run.job_id, 1)
    run.wait_for("starts again")
    assert play("playbooks/status.yml", job_id=run.job_id).rc == 0
    play("playbooks/stop.yml", job_id=run.job_id).expect(0)
    run.wait()
    left = written_by_root(node, "/root/.before")
    node.host.check_output("rm /root/.before")

    def allowed(path, while_it_runs):
        documented = r"/root|/var/cache/trainyard(/.*)?|/var/lib/trainyard/jobs|/etc/systemd/system(/[\w.-]+\.wants)?"
        units = rf"/etc/systemd/system/(multi-user\.target\.wants/)?trainyard-{run.job_id}\.service"
        return re.fullmatch(documented + (f"|{units}" if while_it_runs else ""), path)

    assert [path for path in lasting if "/system/trainyard-" in path], "a job with restarts has units that last"
    assert [path for path in sorted(lasting) if not allowed(path, True)] == []
    assert [path for path in sorted(left) if not allowed(path, False)] == []
    folder = node.host.file(f"/var/lib/trainyard/jobs/{run.job_id}")
    assert (folder.user, folder.mode) == ("train", 0o700)
    assert node.host.run(f"find {folder.path} -user root -o -perm /6000").stdout == ""
