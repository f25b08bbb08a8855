"""Jobs in an image: what each node's plan says of it, and which nodes cannot run it or have to bring it first."""

import pytest
from ansible.module_utils.trainyard.job.plan import images
from ansible.module_utils.trainyard.job.plan.plan import describe
from job_samples import briefly, make_job, make_plan, member, planned

ARCHIVE = "oci-archive:/images/torch.tar"
ID = f"sha256:{'ab' * 32}"
FACT = {
    "runtimes": {"podman": {"program": "/usr/bin/podman", "version": "4.3.1"}},
    "runtime": "podman",
    "user": "2000:2000",
    "id": ID,
    "image": ID,
    "path": "/opt/conda/bin:/usr/bin",
    "python": "/opt/conda/bin/python",
    "python_version": "3.11.2",
    "mpi": "",
    "cuda": "",
    "files": [],
    "present": True,
    "venv": False,
    "packages": {"torch": "2.13.0"},
    "missing": {},
    "problems": [],
}


def fact(**changes):
    return {**FACT, **changes}


def nodes(*facts, **changes):
    facts = facts or (FACT, FACT)
    return [member(number, image=each, packages=each["packages"], **changes) for number, each in enumerate(facts)]


def made(*facts, devices=0, job=None, **changes):
    job = job or make_job(image=ARCHIVE, packages=["torch"], **changes)
    return make_plan(job, nodes(*facts, devices=devices)).as_dict()


def found(*facts, **job):
    return briefly(planned(make_job(image=ARCHIVE, packages=["torch"], **job), nodes(*facts))[1])


def test_ranks_get_the_paths_and_the_python_of_the_image():
    plan = made()
    (agent,) = plan["nodes"][0]["processes"]
    assert agent["env"]["PATH"] == FACT["path"] and "VIRTUAL_ENV" not in agent["env"]
    assert agent["argv"][0] == FACT["python"] and plan["venv"] == ""
    container = plan["nodes"][1]["container"]
    assert (container["runtime"], container["program"], container["image"]) == ("podman", "/usr/bin/podman", ID)
    assert container["python"] == FACT["python"] and container["devices"] == []
    assert container["mounts"] == [["/var/lib/trainyard/jobs/digits-20261120-101500"] * 2 + ["rw"]]
    # The whole command line is what --check shows.
    line = next(line for line in describe(plan).splitlines() if "agent" in line)
    assert "/usr/bin/podman run --pull never --replace --network=host" in line and f" {ID} {FACT['python']} " in line


def test_a_virtual_environment_of_the_image_counts():
    venv = make_job().venv
    plan = made(*[fact(venv=True, python=f"{venv}/bin/python")] * 2)
    (agent,) = plan["nodes"][0]["processes"]
    assert plan["venv"] == venv and agent["env"]["PATH"] == f"{venv}/bin:{FACT['path']}"
    assert plan["nodes"][0]["container"]["path"] == f"{venv}/bin:{FACT['path']}"


@pytest.mark.parametrize("version", ["3.6.15", "2.7", ""])
def test_an_old_python_of_an_image_runs_no_program_of_ours(version):
    plan = made(*[fact(python_version=version)] * 2, launcher="direct")
    assert plan["nodes"][0]["container"]["python"] == ""


def test_mpirun_runs_on_the_node_and_its_ranks_in_the_image():
    job = make_job(image=ARCHIVE, packages=[], launcher="mpirun")
    mpi = {"path": "/usr/bin/mpirun", "version": "4.1.4", "lib": ""}
    plan = make_plan(job, nodes(mpi=mpi)).as_dict()
    (mpirun,) = plan["nodes"][0]["processes"]
    assert mpirun["on_host"] and mpirun["argv"][0] == "mpirun" and mpirun["env"]["PATH"].startswith("/usr/local/sbin:")
    assert "btl_vader_single_copy_mechanism" in mpirun["argv"]
    assert ["/tmp", "/tmp", "rw"] in plan["nodes"][0]["container"]["mounts"]  # noqa: S108
    assert "podman" not in describe(plan)


def test_mounts_are_the_jobs_folder_its_data_its_checkpoints_and_what_it_names():
    plan = made(
        data=["/data/digits"], mounts=["/other:/data/digits"], checkpoints="/saved/run/step_*.pt", max_restarts=1
    )
    assert plan["nodes"][0]["container"]["mounts"][1:] == [
        ["/other", "/data/digits", "rw"],
        ["/saved/run", "/saved/run", "rw"],
    ]
    assert [images.fixed_folder(each) for each in ("/a/b/", "/a/*/c", "/a/b*")] == ["/a/b", "/a", "/a"]


def test_devices_of_the_node():
    assert made(devices=2)["nodes"][0]["container"]["devices"] == ["nvidia.com/gpu=all"]
    assert made(devices=2)["nodes"][0]["container"]["gpus"] is True


def test_nodes_with_other_images_and_other_programs_are_named():
    other = "sha256:" + "cd" * 32
    assert ("n2", "image", f"n2 has it as {other[:19]}") in found(FACT, fact(id=other, image=other), FACT)
    docker = fact(runtime="docker", runtimes={"docker": {"program": "/usr/bin/docker", "version": "25"}})
    assert ("n3", "image", "n3 runs it by docker") in found(FACT, FACT, docker)


def test_what_the_job_needs_and_the_image_lacks():
    lacking = fact(missing={"programs": ["train"], "modules": ["sklearn"]}, packages={"torch": None})
    findings = found(lacking, lacking, venv="/opt/venv")
    assert ("n1", "program", "no train in the image") in findings
    assert ("n2", "imports", "no module sklearn for /opt/conda/bin/python of the image") in findings
    assert ("n1", "versions", "no torch in the image, in /opt/venv or its own Python") in findings
    without = found(lacking, lacking, venv="")
    assert ("n1", "versions", "no torch in the image's own Python") in without


def test_an_image_with_a_newer_cuda_than_the_driver_runs():
    def of(cuda, driver):
        facts = {"n1": {"image": fact(cuda=cuda), "accelerators": {"driver": driver}}}
        return briefly(images.findings(make_job(image=ARCHIVE).image, facts))

    assert of("12.4.1", "535.129.03") == of("12.4.1", None) == of("", "470.1") == of("9.0", "470.1") == []
    assert of("12.4.1", "470.199.02") == [("n1", "image", f"{ARCHIVE} with CUDA 12.4.1, and driver 470.199.02")]


def test_an_image_with_another_open_mpi_than_the_node_is_named():
    def of(inside, outside):
        facts = {"n1": {"image": fact(mpi=inside), "mpi": {"version": outside} if outside else None}}
        return briefly(images.findings(make_job(image=ARCHIVE).image, facts))

    assert of("4.1.6", "4.1.4") == of("", "4.1.4") == of("5.0.3", "") == []
    assert of("5.0.3", "4.1.4") == [("n1", "mpi", f"Open MPI 5.0.3 in {ARCHIVE}")]


@pytest.mark.parametrize(
    ("version", "old"), [("3.4.4", True), ("4.0.2", True), ("4.1", False), ("5.4.2", False), ("", False)]
)
def test_a_podman_that_is_too_old_is_named(version, old):
    facts = [fact(runtimes={"podman": {"program": "/usr/bin/podman", "version": version}})] * 2
    assert found(*facts) == ([(host, "container", f"podman {version}") for host in ("n1", "n2")] if old else [])


def test_problems_of_a_node_are_its_findings():
    problem = {"check": "container", "found": "no podman", "expected": "one", "action": "install it"}
    assert ("n2", "container", "no podman") in found(FACT, fact(problems=[problem]))


def test_only_nodes_without_the_image_bring_it():
    facts = {"n1": {"image": FACT}, "n2": {"image": fact(id="", present=False, path="", python="", packages={})}}

    def of(**job):
        return images.to_pull(make_job(image=ARCHIVE, **job).image, facts)

    assert (of(), of(image_pull="always"), of(image_pull="never")) == (["n2"], ["n1", "n2"], ["n2"])
    assert images.to_pull(make_job(image="/a.sif").image, facts) == images.to_pull(None, facts) == []


def test_an_image_that_is_still_to_come_is_no_fault_unless_it_is_never_pulled():
    absent = fact(id="", present=False, path="", python="", python_version="", packages={})
    assert found(FACT, absent) == found(absent, absent) == []
    assert found(FACT, absent, image_pull="never") == [("n2", "image", f"no {ARCHIVE}")]
    # It is there, but has never been started.
    assert found(FACT, {**absent, "present": True}, image_pull="never") == []


def test_what_nodes_are_asked():
    job = make_job(image=ARCHIVE, command=["python", "-m", "trainer"], mounts=["/data:/data"])
    asked = images.request(job, ["x.py"], ["numpy"])
    assert asked["programs"] == ["python"] and asked["mounts"] == ["/data"] and asked["mpi"] is False
    assert asked["modules"] == ["torch", "trainer", "numpy"]
    assert images.request(make_job(image=ARCHIVE, command=["./run.sh"]), ["run.sh"], [])["programs"] == []
    assert images.request(make_job(), [], []) is None
