"""Verification that was asked for, and a node with another version, which takes minutes."""

from lab_jobs import other_numpy
from test_pytorch import VENV


def test_the_verification_runs_again_when_asked(run_playbook, last_name, last):
    # Python runs this line at each start; only the proof has that variable, and hangs as with a network that is down.
    stall = last.check_output(f"ls -d {VENV}/lib/python*/site-packages") + "/stall.pth"
    line = "import os, time; os.environ.get('OMP_NUM_THREADS') and time.sleep(600)"
    last.check_output(f'echo "{line}" | sudo tee {stall}')
    try:
        done = run_playbook("changed.yml", "--limit", last_name, pytorch_verify=True, pytorch_verify_timeout=3)
        done.fails(f"the check of {VENV} did not end within 3 s")
    finally:
        last.check_output(f"sudo rm {stall}")
    run_playbook("changed.yml", "--limit", last_name, pytorch_verify=True).expect(0).changes_nothing()


def test_a_node_with_another_version_is_named(run_playbook, node_names, last_name, last):
    with other_numpy(last, VENV, "2.4.6", "2.4.5"):
        run_playbook("changed.yml", pytorch_packages=[], pytorch_verify_timeout=180).fails(
            f"versions on {last_name} found torch 2.13.0", "numpy 2.4.5, Python 3", f"as on {node_names[0]}"
        )
        run_playbook("changed.yml", step="verify").fails()
