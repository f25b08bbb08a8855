"""Launches with findings about programs, environments and images, and what readers do for each part of the advice."""

from __future__ import annotations

from pathlib import Path

from advice_readers import AS_WRITTEN, USE_DIRECT, have, of_job, of_world, together
from ansible.module_utils.trainyard_node.job.plan import image_inspection, obstacles
from ansible.module_utils.trainyard_node.job.run.evidence import health_gate
from ansible.module_utils.trainyard_node.machine.tree import Tree
from job_samples import VENV
from launch_world import ME, NOBODY, World, alone, environment, on
from test_images import ARCHIVE, FACT

OTHER = "oci-archive:/images/other.tar"
NO_DEVICES = {"accelerators": {"vendor": "none", "devices": [], "problems": []}, "npu": None}


def at(**packages_of):
    """Return what decides the packages of a node by the folder of job_venv."""
    return lambda facts, about: {**facts, "packages": packages_of.get(Path(about["venv"] or "-").name, {})}


def imaged(fact_of, nodes=2, **job):
    """Return a launch of a job in an image; `fact_of` gives the image's facts for what a host is asked about."""
    world = World(nodes, image=ARCHIVE, **job)

    def answers(facts, about):
        changes = fact_of(facts["hostname"], about["image"], about["venv"], world) if about["image"] else None
        image = None if changes is None else {**FACT, **changes}
        return {**facts, "image": image, "packages": (image or {}).get("packages", {})}

    return world.having(answers=answers, brought=False)


def is_first(image):
    return image["reference"] == ARCHIVE


def scripts_differ():
    world = World(command=["python", "/opt/train.py"])
    world.programs = {
        name: {"/opt/train.py": {"path": "/opt/train.py", "form": "script", "sha256": name}} for name in world.facts
    }
    return world


def runtime(name, version):
    return {"runtime": name, "runtimes": {name: {"program": f"/usr/bin/{name}", "version": version}}}


def without_python(image):
    return [name for name in image["programs"] if name != "python"]


def memory(node_plan, text):
    class Machine(Tree):
        def text(self, path):
            return text if path == "/proc/meminfo" else None

    return health_gate.check(Machine("/proc/nowhere"), node_plan, {**on(), **NO_DEVICES})


def identified(_, image, __, ___):
    """Return what a node finds of an image in a file."""
    problem = image_inspection.identify({**image, "runtimes": []}, {"runtime": "podman", "runtimes": {}})[2]
    return {"problems": [problem] if problem else []}


def sif(folder, name="right.sif", magic=b"SIF_MAGIC"):
    (folder / name).write_bytes(b"\0" * 32 + magic.ljust(32, b"\0"))
    return str(folder / name)


CASES = {
    # Programs, environments and what lies on nodes.
    "no job_source": lambda _: (
        World(source="/proc/nowhere"),
        {
            "correct job_source (a relative path counts from the job file's folder, then from the project's)": (
                lambda world: world.job.pop("job_source")
            )
        },
    ),
    "no such script": lambda _: (
        World(command=["python", "other.py"]),
        {
            "correct job_command": {"command": ["python", "train.py"]},
            "job_source": lambda world: world.files.update({"other.py": ""}),
        },
    ),
    "other scripts on each node": lambda _: (
        scripts_differ(),
        {
            "copy the same file to all nodes": lambda world: world.programs.clear(),
            "put it into job_source, which is sent to all nodes": together(
                lambda world: world.programs.clear(), {"command": ["python", "train.py"]}
            ),
        },
    ),
    "packages that are nowhere": lambda _: (
        World(packages=["torch"]).having(answers=at(other={"torch": "2.13.0"})),
        {"set job_venv to where it is": {"venv": "/venvs/other"}, "take it out of job_packages": {"packages": []}},
    ),
    "another version of a package": lambda _: (
        World(packages=["torch>=3"]).having(answers=at(pytorch={"torch": "2.13.0"})),
        {"correct job_packages": {"packages": ["torch>=2"]}},
    ),
    "torchrun without an environment": lambda _: (
        World(launcher="torchrun", venv=None),
        {"set job_venv": {"venv": VENV}, **USE_DIRECT},
    ),
    "msrun without an environment": lambda _: (
        World(launcher="msrun", venv=None),
        {"set job_venv": {"venv": VENV}, "use job_launcher: mindspore": AS_WRITTEN},
    ),
    "OneFlow without an environment": lambda _: (
        World(launcher="oneflow", venv=None),
        {"set job_venv: oneflow": AS_WRITTEN, "to where it is": {"venv": "/venvs/other"}},
    ),
    "another program with msrun": lambda _: (
        World(launcher="msrun", command=["bash", "run.sh"]).having(files={"run.sh": "python3 x.py\n"}),
        {"begin job_command with python": {"command": ["python", "run.sh"]}, "use job_launcher: mindspore": AS_WRITTEN},
    ),
    "MindSpore on CPU with mpirun": lambda _: (
        World(launcher="mpirun", packages=["mindspore"]).having(answers=at(pytorch={"mindspore": "2.7.0"})),
        {"set job_launcher: mindspore": AS_WRITTEN},
    ),
    "MindSpore without a build for GPUs": lambda _: (
        World(1, gpus=1, packages=["mindspore"]).having(
            answers=at(pytorch={"mindspore": "2.7.0"}, other={"mindspore": "2.2.14"})
        ),
        {
            "set job_devices: none to train on the CPU": AS_WRITTEN,
            "job_venv to an environment with such a build": {"venv": "/venvs/other"},
        },
    ),
    "MindSpore without msrun": lambda _: (
        World(launcher="msrun", packages=["mindspore"]).having(answers=at(pytorch={"mindspore": "2.2.14"})),
        {"use job_launcher: mindspore": AS_WRITTEN},
    ),
    "no Python": lambda folder: (
        of_job(alone(folder), venv=f"{folder}/none", command=["bash", "train.py"]),
        {"set job_venv": {"venv": f"{folder}/venv"}},
    ),
    "no program": lambda folder: (
        alone(folder, command=["no-such-program"]),
        {
            "correct job_command": {"command": ["python", "train.py"]},
            "job_venv": {"venv": environment(folder, "new", programs=["no-such-program"])},
        },
    ),
    "no module": lambda folder: (
        alone(folder, command=["python", "-m", "no_such_module"]),
        {
            "add it to job_source": lambda world: world.files.update({"no_such_module.py": ""}),
            "correct job_command": {"command": ["python", "train.py"]},
            "job_venv": {"venv": environment(folder, "new", "no_such_module")},
        },
    ),
    "no launcher in the environment": lambda folder: (
        alone(folder, launcher="torchrun"),
        {"set job_venv to where it is": {"venv": environment(folder, "new", "torch/distributed/run")}},
    ),
    "no import": lambda folder: (
        alone(folder).having(files={"train.py": "import torch\n"}),
        {"set job_venv to the environment that has torch": {"venv": environment(folder, "new", "torch")}},
    ),
    "no part of an import": lambda folder: (
        of_job(alone(folder).having(files={"train.py": "import abd.old\n"}), venv=environment(folder, "one", "abd")),
        {
            "set job_venv or job_image to an environment with an earlier or newer release of abd, which has abd.old": {
                "venv": environment(folder, "new", "abd/old")
            }
        },
    ),
    "no data": lambda folder: (
        alone(folder, data=["/proc/nowhere"]),
        {
            "run site.yml with that data set in `dataset_sets`": of_world(finds=lambda _: []),
            "correct job_data": {"data": [str(folder)]},
        },
    ),
    "no script on the nodes": lambda folder: (
        alone(folder, command=["python", f"{folder}/train.py"]),
        {
            "copy it there": lambda _: (folder / "train.py").touch(),
            "give the script to job_source, which is sent to all nodes": {"command": ["python", "train.py"]},
        },
    ),
    "no folder for records": lambda folder: (
        alone(folder, launcher="mindspore", max_restarts=1, recovery=True, recovery_path="/sys").having(
            finds=lambda plan: obstacles.recovery_findings(plan, NOBODY)
        ),
        {"correct job_recovery_path": {"recovery_path": "/var/tmp"}},  # noqa: S108
    ),
    "no folder for metrics": lambda folder: (
        alone(folder, metrics_folder=str(folder / "metrics")),
        {
            f"make it, as root: install -d -m 1775 -o root -g $(id -gn {ME}) {folder}/metrics": (
                lambda _: (folder / "metrics").mkdir()
            )
        },
    ),
    "no receiver of events": lambda folder: (
        alone(folder, events=[{"command": ["/proc/nowhere"]}]),
        {"correct job_events": {"events": [{"command": ["/bin/true"]}]}},
    ),
    "too little room": lambda folder: (
        of_job(alone(folder), min_disk_mib=(health_gate.shutil.disk_usage(folder).free >> 20) + 1),
        {"lower job_min_disk_mib": {"min_disk_mib": 1}},
    ),
    "too little memory": lambda folder: (
        alone(folder, min_memory_mib=1 << 20).having(finds=lambda plan: memory(plan, "MemAvailable: 1024000 kB\n")),
        {"lower job_min_memory_mib": {"min_memory_mib": 1}},
    ),
    "more room than a disk has": lambda folder: (
        of_job(alone(folder), min_disk_mib=(health_gate.shutil.disk_usage(folder).total >> 20) + 1),
        {"correct job_min_disk_mib": {"min_disk_mib": 1}, "choose other nodes": of_world(finds=lambda _: [])},
    ),
    # Images.
    "an old Podman": lambda _: (
        imaged(lambda _, image, *__: {} if image["runtimes"] == ["docker"] else runtime("podman", "3.0.1")),
        {"choose another program with job_container": {"container": "docker"}},
    ),
    "no program in the image": lambda _: (
        imaged(
            lambda _, image, venv, __: {
                "missing": {"programs": [] if venv == "/other" or not is_first(image) else without_python(image)}
            },
            command=["train"],
        ),
        {
            "take another image": {"image": OTHER},
            "correct job_command": {"command": ["python", "train.py"]},
            f"job_venv: {ARCHIVE} is searched": {"venv": "/other"},
        },
    ),
    "an import with another release": lambda _: (
        imaged(lambda _, image, *__: {"missing": {"modules": ["oneflow.typing"] if is_first(image) else []}}),
        {"take an image with OneFlow up to 0.4 (docs/guide-oneflow.md)": {"image": OTHER}},
    ),
    "no package in the image": lambda _: (
        imaged(
            lambda _, image, venv, __: {"packages": {"x": "1"} if venv == "/other" or not is_first(image) else {}},
            packages=["x"],
        ),
        {
            "take another image": {"image": OTHER},
            "correct job_packages": {"packages": []},
            "job_venv": {"venv": "/other"},
        },
    ),
    "an image that is never pulled": lambda _: (
        imaged(lambda *_: {"id": "", "present": False}, image_pull="never"),
        {
            "bring it there": of_world(answers=lambda facts, _: {**facts, "image": FACT}),
            "set job_image_pull: missing": AS_WRITTEN,
        },
    ),
    "no image in a file": lambda folder: (
        imaged(identified).having(job={**World().job, "job_image": "/proc/nowhere.sif"}),
        {"correct job_image": {"image": sif(folder)}},
    ),
    "no image in an archive": lambda folder: (
        imaged(identified).having(job={**World().job, "job_image": "oci-archive:/proc/nowhere.tar"}),
        {"correct job_image": {"image": sif(folder)}, "bring it there (job_image_copy)": {"image_copy": "n1"}},
    ),
    "a file that is no image": lambda folder: (
        imaged(identified).having(job={**World().job, "job_image": sif(folder, "no.sif", b"")}),
        {"correct job_image": {"image": sif(folder)}},
    ),
    "other programs for the image": lambda _: (
        imaged(
            lambda host, image, *_: (
                {} if host != "n3" or image["runtimes"] == ["podman"] else runtime("docker", "24.0.1")
            ),
            3,
        ),
        {"set job_container": {"container": "podman"}},
    ),
    "other images": lambda _: (
        imaged(lambda host, _, __, world: {} if host != "n3" or world.brought else {"id": "sha256:cd"}, 3),
        {"pull it again there (job_image_pull: always)": AS_WRITTEN, f"replace {ARCHIVE}": of_world(brought=True)},
    ),
    "a newer CUDA than the driver knows": lambda _: (
        have(n1={"accelerators": {"vendor": "nvidia", "devices": [{"index": 0}], "driver": "470.1"}})(
            world := imaged(lambda _, image, *__: {"cuda": "12.4" if is_first(image) else "11.8"}, 1)
        )
        or world,
        {"take an image with an older CUDA": {"image": OTHER}},
    ),
    "another Open MPI in the image": lambda _: (
        imaged(lambda _, image, *__: {"mpi": "5.0.1" if is_first(image) else "4.1.2"}, launcher="mpirun"),
        {"take an image with the node's Open MPI": {"image": OTHER}},
    ),
}
