"""Processes that use a node: open GPUs in /proc. molecule/nvidia_driver checks the folder of a job."""

import pytest
from ansible.module_utils.trainyard_node.job.plan import in_use
from ansible.module_utils.trainyard_node.slurm import set_aside


@pytest.fixture
def proc(tmp_path):
    """A folder as /proc is, and a function that puts a process into it."""

    def add(pid, name, *opened):
        fd = tmp_path / str(pid) / "fd"
        fd.mkdir(parents=True)
        (tmp_path / str(pid) / "comm").write_text(f"{name[:15]}\n")
        for number, target in enumerate(opened):
            (fd / str(number)).symlink_to(target)

    (tmp_path / "self").mkdir()
    add(1, "systemd", "/dev/null")
    return tmp_path, add


def test_a_process_with_an_open_gpu_uses_the_node(proc):
    folder, add = proc
    add(20, "python3", "/dev/null", "/dev/nvidiactl", "/dev/nvidia7")
    add(21, "ncu", "/dev/nvidia12")
    assert in_use.holders([], folder) == {20: "python3", 21: "ncu"}


@pytest.mark.parametrize(
    "opened", ["/dev/nvidiactl", "/dev/nvidia-modeset", "/dev/nvidia-caps/nvidia-cap1", "/srv/dev/nvidia0"]
)
def test_other_open_files_do_not_count(proc, opened):
    folder, add = proc
    add(20, "python3", opened)
    assert in_use.holders([], folder) == {}


def test_services_of_the_driver_and_of_the_site_do_not_count(proc):
    folder, add = proc
    for pid, name in enumerate(in_use.SERVICES, start=20):
        add(pid, name, "/dev/nvidia0")
    add(40, "telegraf-with-a-long-name", "/dev/nvidia0")
    assert in_use.holders([], folder) == {40: "telegraf-with-a"}
    assert in_use.holders(["telegraf-with-a-long-name"], folder) == {}


@pytest.mark.parametrize(("name", "has"), [("kubelet", True), ("k3s-agent", True), ("kubectl", False)])
def test_a_node_of_kubernetes_is_known_by_its_kubelet(proc, name, has):
    folder, add = proc
    add(30, name, "/dev/null")
    assert in_use.has_kubelet(folder) is has


def test_jobs_of_slurm_and_the_first_processes_are_named(monkeypatch, tmp_path):
    monkeypatch.setattr(set_aside, "node_name", lambda: "n2")
    monkeypatch.setattr(set_aside, "jobs_of", lambda node: ["12"])
    monkeypatch.setattr(in_use, "holders", lambda services: dict.fromkeys(range(20, 20 + len(services)), "python3"))
    assert in_use.read_uses(tmp_path, ["a"]) == (["job 12 of Slurm", "python3 (process 20)"], "n2")
    uses, _ = in_use.read_uses(tmp_path, ["a"] * 30)
    assert (len(uses), uses[-1]) == (9, "23 more")
