"""Take frameworks, an interrupted site.yml and the work of others off two bare hosts: minutes, so it runs by name.

pytest tests/remove_by_name.py in the scenario's folder, with `LAB` and `LAB_INVENTORY` of any lab.
"""

import os
import signal
import subprocess

import pytest
from lab_jobs import LAB, PROJECT, wait_until
from test_site import bare_lab, fingerprints

NODES = ("n1", "n2")
FRAMEWORKS = os.environ.get("FRAMEWORKS", "pytorch,openmpi").split(",")
SITE = {"trainyard_frameworks": FRAMEWORKS}
REMOVE = "playbooks/remove.yml"


def on(node, command, check=True):
    argv = ["podman", "exec", f"{LAB}-bare-{node}", "sh", "-c", command]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=120)
    assert not check or done.returncode == 0, done.stdout + done.stderr
    return done.stdout if check else done.returncode == 0


@pytest.fixture(scope="module")
def bare():
    with bare_lab() as inventory:
        yield inventory


@pytest.fixture(scope="module")
def before(bare):
    return fingerprints()


def differences(before):
    return {node: sorted(lines ^ before[node]) for node, lines in fingerprints().items()}


def test_what_an_interrupted_site_yml_did_is_undone(run_playbook, bare, before):
    argv = ["ansible-playbook", "-i", str(bare), "site.yml", "--skip-tags", "verify"]
    with subprocess.Popen(argv, cwd=PROJECT, start_new_session=True, stdout=subprocess.DEVNULL) as site:
        made = "test -e /etc/systemd/system.conf.d/60-trainyard.conf && id train"
        wait_until(lambda: on("n1", made, check=False), "the first settings")
        os.killpg(site.pid, signal.SIGKILL)
    # While it is not known what came after the run, others work on the node.
    on("n1", "apt-get install --yes --no-install-recommends bc && useradd anna")
    run_playbook(REMOVE, inventory=bare).expect(0, "libpopt0, rsync", "remove the user train")
    assert on("n1", "command -v bc && id anna")
    on("n1", "apt-get purge --yes bc && userdel anna")
    assert differences(before) == {"n1": [], "n2": []}


def test_a_node_with_a_job_is_refused(run_playbook, play, bare, before):
    run_playbook("site.yml", inventory=bare, timeout=1800, **SITE).expect(0)
    job = play.launch(PROJECT / "molecule/jobs/jobs/worker.yml", inventory=bare, job_command=["sleep", "600"])
    job.wait_for(r"2/2 ranks running")
    # The job itself writes below its folder.
    jobs = "/var/lib/trainyard/jobs/"
    made = fingerprints()
    refused = run_playbook(REMOVE, inventory=bare)
    after = fingerprints()
    play("playbooks/stop.yml", inventory=bare, job_id=job.job_id).expect(0)
    job.wait()
    found = f"found job {job.job_id} expected"
    refused.expect(2, "1 finding: nothing was removed from any host.", found, "playbooks/stop.yml")
    changed = {line for node, lines in after.items() for line in lines ^ made[node] if not line.startswith(jobs)}
    assert changed == set()


def test_the_work_of_others_stays_and_is_named(run_playbook, bare, before):
    on("n1", "echo '10.9.9.9 nas' >>/etc/hosts")
    on("n1", "echo '# mine' >>/etc/security/limits.d/60-trainyard.conf")
    on("n1", "mkdir -p /opt/trainyard/venvs/mine && touch /home/train/thesis")
    fields = ("Package: admins-app", "Version: 1", "Architecture: all", "Depends: libopenmpi3", "Maintainer: x <x@x>")
    control = "\\n".join((*fields, "Description: x", ""))
    on("n1", f"mkdir -p /tmp/app/DEBIAN && printf '{control}' >/tmp/app/DEBIAN/control")
    on("n1", "dpkg-deb --build /tmp/app /tmp/app.deb && dpkg --install /tmp/app.deb")
    run = run_playbook(REMOVE, inventory=bare)
    run.expect(
        0,
        "package libopenmpi3: admins-app depends on it",
        "a copy of /etc/security/limits.d/60-trainyard.conf: somebody changed it since",
        "/opt/trainyard/venvs/mine: it is not trainyard's; remove_data takes it",
        "/home/train of train, with thesis; remove_data takes it",
        "/var/lib/trainyard/data: 1 entry; remove_data takes them",
    )
    assert on("n1", "tail -n 1 /etc/hosts") == "10.9.9.9 nas\n"
    assert on("n1", "tail -n 1 /var/backups/trainyard/etc_security_limits.d_60-trainyard.conf") == "# mine\n"
    on("n1", "test -d /opt/trainyard/venvs/mine && test -e /home/train/thesis && dpkg -s libopenmpi3 admins-app")
    # What held it is gone, and the results are not needed any more.
    on("n1", "dpkg --purge admins-app && sed -i '/nas$/d' /etc/hosts && rm -r /var/backups/trainyard")
    run_playbook(REMOVE, inventory=bare, remove_data=True).expect(0)
    assert differences(before) == {"n1": [], "n2": []}
    run_playbook(REMOVE, inventory=bare).expect(0, "n1, n2: nothing of trainyard is there to remove")


def test_a_damaged_record_is_refused_by_name(run_playbook, bare):
    on(
        "n2",
        "mkdir -p -m 700 /var/lib/trainyard-root/removal && echo '{}' >/var/lib/trainyard-root/removal/record.json",
    )
    run = run_playbook(REMOVE, inventory=bare)
    path = "/var/lib/trainyard-root/removal/record.json"
    run.expect(2, f"record on n2 found {path}: it is not trainyard's", "nothing was removed from any host")
    site = run_playbook("site.yml", "--skip-tags", "verify", inventory=bare, **SITE)
    site.expect(2, f"record on n2 found {path}: it is not trainyard's", "and nothing was changed.")
    on("n2", "rm -r /var/lib/trainyard-root")
