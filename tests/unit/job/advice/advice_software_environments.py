"""Environments, images and their sources that cannot be had, and what readers do for each part of the advice."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from unittest.mock import patch

from advice_readers import Check, now
from ansible.module_utils.trainyard.findings.findings import Finding
from ansible.module_utils.trainyard.software import image, mindspore, package_index, pytorch, requested
from ansible.module_utils.trainyard.software.requirements import parse
from ansible.module_utils.trainyard_controller.file_sources import sha256
from ansible.module_utils.trainyard_node.machine.tree import Outcome
from ansible.module_utils.trainyard_node.software import image_state
from ansible.module_utils.trainyard_node.software.can_install import can_install
from environment_samples import ENVIRONMENT
from test_image import BASE, LOCK, SUM, WANTED
from test_image_state import IMAGE, PRINTED, REFERENCE

INDEX = package_index.Offered
SOURCES = "pytorch_builds_url, pytorch_index_url, pytorch_extra_index_urls, pytorch_find_links"
MIRROR = "https://me:secret@mirror.example.org/simple"
PIN_IT = "name the image with its digest, which `skopeo inspect --format '{{.Name}}@{{.Digest}}' docker://...` prints"
WHEEL = {"wheel_url": "https://mirror.example.org/x.whl", "wheel_sha256": SUM}
GIVE_WHEEL = "set mindspore_wheel_url to the address of its wheel and mindspore_wheel_sha256 to its sum"


# ---- packages of an index, files of the controller


def indexed(pin, offered):
    found = package_index.check(parse(pin, (3, 11)), offered, "the index", "Python 3.11", "pytorch")
    return [found] if found else []


def brought(source):
    found = requested.file_finding(source, sha256(Path(source["local_file"])))
    return [found] if found else []


def of_controller(path, digest=""):
    named = {"what": "Open MPI", "variables": "openmpi_local_file", "sha256": digest}
    return Check(brought, source={**named, "local_file": str(path)})


def written(path):
    path.write_text(path.name)
    return path


def queried(source, offered):
    try:
        requested.index_query(source)
    except ValueError as error:
        return [requested.query_finding(source, error)]
    found = requested.package_finding(source, offered)
    return [found] if found else []


def query(**changes):
    source = {"what": "data set digits", "variables": "dataset_index_url", "platform": "--platform any"}
    return Check(queried, source={**source, "package": "scikit-learn==1.7.2", **changes}, offered=INDEX(("1.7.2",)))


# ---- environments of nodes


def installed(environment, sources):
    """Return what this machine finds of a request."""
    part = {"environment": environment, "prefix": "pytorch", "manage_system": True, "sources": sources}
    return map(Finding.from_dict, can_install(requests={"pytorch": part})["findings"])


def made(folder, sources=(), **changes):
    own = {"path": f"{folder}/venv", "interpreter": sys.executable, "packages": ["torch==2.13.0"], "lock": ""}
    return Check(installed, environment={**ENVIRONMENT, **own, **changes}, sources=list(sources))


def foreign(folder):
    (folder / "venv").mkdir()
    (folder / "venv/notes").touch()
    return made(folder)


def of(**changes):
    return now(environment=changes)


def wheel(folder, version):
    path = written(folder / f"torch-{version}-py3-none-any.whl")
    return {"torch": f"file://{path}#sha256={SUM}"}


def source(url):
    return {"what": "Open MPI", "unless": "none", "variables": "openmpi_url or openmpi_local_file", "url": url}


# ---- images


def based(environment, base):
    return image.environment_findings("pytorch", environment, image.Base(**base))


def base_with(**python):
    return {**BASE, "python": {**BASE["python"], **python}}


def built(base=BASE, **changes):
    return Check(based, environment={**WANTED, "lock": LOCK, **changes}, base=base)


def on(**changes):
    return now(base=changes)


def of_source(**changes):
    return now(environment={"pip_args": [], **changes})


def asked(**changes):
    usual = {"framework": "pytorch", "base": BASE["reference"], "file": "", "is_local": False}
    return Check(image.settings_findings, **{**usual, **changes})


def of_host(installed, version, info, ran, images, pulls, reference, free):
    """Return what a host finds before it builds an image; `free` is in MB."""
    answers = {"--version": version, "info": info, "run": ran}

    def pull(reference):
        if not pulls:
            raise image_state.PodmanError("manifest unknown")
        images.append(reference.removeprefix("docker://"))

    with patch.multiple(
        image_state,
        is_installed=lambda: installed,
        podman=lambda command, *_: answers[command],
        inspect=lambda name: IMAGE if name in images else None,
        run=lambda *_: ran,
        pull=pull,
        archived=lambda path: (str(path) if str(path) == "/srv/base.tar" else "", ""),
        free_bytes=lambda _: free * 10**6,
    ):
        state = image_state.State(reference, may_pull=True)
        state.read("python3", [], "", 1000)
    return state.findings


def host(**changes):
    usual = {"installed": True, "version": Outcome(0, "podman version 4.3.1\n"), "info": Outcome(0, "/srv\n")}
    images = [REFERENCE.removeprefix("docker://"), "localhost/base:1", "/srv/base.tar"]
    rest = {"ran": Outcome(0, PRINTED), "images": images, "pulls": True, "reference": REFERENCE, "free": 9000}
    return Check(of_host, **{**usual, **rest, **changes})


# ---- frameworks


def framework(rules, **settings):
    return Check(lambda **given: rules.input_findings(rules.Settings(**given)), **settings)


msp, torch = partial(framework, mindspore), partial(framework, pytorch)


CASES = {
    # Indexes and files.
    "an index that does not answer": lambda _: (
        Check(indexed, pin="torch==2.13.0", offered=INDEX((), "Connection refused")),
        {
            "see how the node reaches it (name, proxy, certificate)": now(offered=INDEX(("2.13.0",))),
            "name a mirror in pytorch_index_url": now(offered=INDEX(("2.13.0",))),
        },
    ),
    "a build that the index lacks": lambda _: (
        Check(indexed, pin="torch==2.13.0+cu126", offered=INDEX(("2.13.0+cpu",))),
        {
            f"name the index or folder that has it ({SOURCES})": now(offered=INDEX(("2.13.0+cu126",))),
            "another version": now(pin="torch==2.13.0+cpu"),
        },
    ),
    "no file on the controller": lambda folder: (
        of_controller(folder / "none"),
        {"correct openmpi_local_file": now(source={"local_file": str(written(folder / "a"))})},
    ),
    "another file on the controller": lambda folder: (
        of_controller(written(folder / "b"), sha256(written(folder / "a"))),
        {
            "correct openmpi_local_file": now(source={"local_file": f"{folder}/a"}),
            "the sum if it is another file on purpose": now(source={"sha256": sha256(folder / "b")}),
        },
    ),
    "an index with another address": lambda _: (
        query(index_url="mirror"),
        {"correct dataset_index_url": now(source={"index_url": "https://mirror.example.org"})},
    ),
    "no package for the controller": lambda _: (
        Check(queried, **{**query().values, "offered": INDEX(("1.7.1",))}),
        {"set dataset_index_url": now(offered=INDEX(("1.7.2",)))},
    ),
    # Environments.
    "no such interpreter": lambda folder: (
        made(folder, interpreter="python9"),
        {"name another one": of(interpreter=sys.executable)},
    ),
    "an interpreter that does not run": lambda folder: (
        made(folder, interpreter="/bin/false"),
        {"repair it": of(interpreter=sys.executable), "name another one": of(interpreter=sys.executable)},
    ),
    "packages for other Pythons": lambda folder: (
        made(folder, python_min="3.99"),
        {"another version of the packages": of(python_min="")},
    ),
    "a package without a version": lambda folder: (
        made(folder, packages=["torch"]),
        {"correct the list of packages": of(packages=["torch==2.13.0"])},
    ),
    "a wheel of no package": lambda folder: (
        made(folder, wheels=wheel(folder, "2.12.0")),
        {"correct the wheel's address": of(wheels=wheel(folder, "2.13.0")), "the list": of(packages=["torch==2.12.0"])},
    ),
    "an index that is no address": lambda folder: (
        made(folder, index_url="mirror"),
        {"correct it": of(index_url="https://mirror.example.org")},
    ),
    "a lock without hashes": lambda folder: (
        made(folder, lock="torch==2.13.0\n"),
        {"write the file with uv pip compile --generate-hashes": of(lock=LOCK)},
    ),
    "no source of packages": lambda folder: (
        made(folder, no_index=True),
        {"name a folder of wheels: pytorch_find_links": of(find_links=["/wheels"])},
    ),
    "an environment of somebody else": lambda folder: (
        foreign(folder),
        {
            "move it away": lambda _: (folder / "venv").rename(folder / "away"),
            "choose another name or root: pytorch_venv, pytorch_root": of(path=f"{folder}/other"),
        },
    ),
    "too little room for packages": lambda folder: (
        made(folder, min_free_mb=10**9),
        {"choose another root: pytorch_root": of(min_free_mb=0)},
    ),
    "no file at an address": lambda folder: (
        made(folder, [source(f"file://{folder}/x")]),
        {
            "correct openmpi_url or openmpi_local_file": now(sources=[source(f"file://{__file__}")]),
            "bring the file there": lambda _: (folder / "x").touch(),
        },
    ),
    "no server at an address": lambda folder: (
        made(folder, [source("http://127.0.0.1:9/x")]),
        {"name another in openmpi_url or openmpi_local_file": now(sources=[source(f"file://{__file__}")])},
    ),
    # Images.
    "an unknown framework": lambda _: (asked(framework="torch"), {"name one of them": now(framework="pytorch")}),
    "no base": lambda _: (
        asked(base=""),
        {
            PIN_IT: now(base=BASE["reference"]),
            "an archive (oci-archive:/path)": now(base="oci-archive:/path"),
            "an image of the host": now(base="localhost/base:1"),
        },
    ),
    "a base without a digest": lambda _: (asked(base="docker://python:3.11"), {PIN_IT: now(base=BASE["reference"])}),
    "a base of another form": lambda _: (
        asked(base="oci-archive:a.tar"),
        {"correct it": now(base="oci-archive:/a.tar")},
    ),
    "a file in no folder": lambda _: (asked(file="a.tar"), {"begin it with a slash": now(file="/a.tar")}),
    "a folder in place of a file": lambda _: (
        asked(file="/srv/"),
        {"name a file, such as pytorch.tar": now(file="/srv/pytorch.tar")},
    ),
    "a base with another Python": lambda _: (
        built(base_with(version=[3, 9, 2])),
        {
            "choose another base": now(base=BASE),
            "another pytorch_interpreter in it": now(base=BASE),
            "another release of PyTorch": now(environment={"python_min": "3.9"}),
        },
    ),
    "a base without venv": lambda _: (
        built(base_with(can_make_environments=False)),
        {"choose another base": now(base=BASE), "install python3.11-venv in it (Debian, Ubuntu)": now(base=BASE)},
    ),
    "a base without a library": lambda _: (
        built({**BASE, "lacking": ["libgomp.so.1"]}),
        {"choose another base": on(lacking=[]), "install it there": on(lacking=[])},
    ),
    "an image of packages without versions": lambda _: (
        built(packages=["torch>=2"]),
        {"correct the list of packages": now(environment={"packages": ["torch==2.13.0"]})},
    ),
    "an image by a lock without hashes": lambda _: (
        built(lock="torch==2.13.0\n"),
        {"write it with uv pip compile --generate-hashes": now(environment={"lock": LOCK})},
    ),
    "an image without a source of packages": lambda _: (
        built(no_index=True),
        {"name a folder of wheels in pytorch_find_links": now(environment={"find_links": ["/wheels"]})},
    ),
    "a password for all to see": lambda _: (
        built(pip_args=[f"--extra-index-url={MIRROR}"]),
        {
            "name it in pytorch_index_url": of_source(index_url=MIRROR),
            "pytorch_extra_index_urls": of_source(extra_index_urls=[MIRROR]),
            "pytorch_find_links": of_source(find_links=[MIRROR]),
        },
    ),
    "no Podman": lambda _: (
        host(installed=False),
        {
            "add container_runtime to trainyard_frameworks and run site.yml": now(installed=True),
            "name a host that has it: -e image_host=NAME": now(installed=True),
        },
    ),
    "an old Podman to build with": lambda _: (
        host(version=Outcome(0, "podman version 3.4.4\n")),
        {"name a host that has it: -e image_host=NAME": now(version=Outcome(0, "podman version 4.3.1\n"))},
    ),
    "a Podman that does not work": lambda _: (
        host(info=Outcome(125, "Error: no cgroups\n")),
        {"run `podman info` on the host, and repair what it reports": now(info=Outcome(0, "/srv\n"))},
    ),
    "no archive of a base": lambda _: (
        host(reference="oci-archive:/proc/nowhere.tar"),
        {
            "name the archive of an image (podman save), which lies on this host": now(
                reference="oci-archive:/srv/base.tar"
            )
        },
    ),
    "no base in the store": lambda _: (
        host(reference="localhost/none:1"),
        {
            "pull or load it there": now(images=["localhost/none:1"]),
            "name docker://NAME@sha256:...": now(reference=REFERENCE),
            "an archive": now(reference="oci-archive:/srv/base.tar"),
        },
    ),
    "a base that cannot be pulled": lambda _: (
        host(images=["localhost/base:1"], pulls=False),
        {
            "see how the host reaches it (name, proxy, certificate, podman login)": now(pulls=True),
            "name another base": now(reference="localhost/base:1"),
        },
    ),
    "a base without Python": lambda _: (
        host(ran=Outcome(127, "no such file\n")),
        {
            "choose a base with a Python": now(ran=Outcome(0, PRINTED)),
            "name its interpreter in FRAMEWORK_interpreter": now(ran=Outcome(0, PRINTED)),
        },
    ),
    "too little room for an image": lambda _: (
        host(free=100),
        {"make room there": now(free=9000), "choose another host": now(free=9000)},
    ),
    # MindSpore and PyTorch.
    "no exact MindSpore": lambda _: (
        msp(version="2.10"),
        {"correct it (roles/mindspore/README.md)": now(version="2.10.0")},
    ),
    "a prerelease of MindSpore": lambda _: (msp(version="2.10.0b1"), {GIVE_WHEEL: now(**WHEEL)}),
    "a MindSpore that no index has": lambda _: (
        msp(version="2.1.0", device="gpu", cuda="11.6"),
        {GIVE_WHEEL: now(**WHEEL)},
    ),
    "an unknown MindSpore": lambda _: (
        msp(version="2.11.0"),
        {
            "set mindspore_python_min and mindspore_python_max to the Pythons that it has wheels for": now(
                python_min="3.10", python_max="3.13"
            )
        },
    ),
    "a MindSpore for no GPU": lambda _: (
        msp(version="2.9.0", device="gpu", cuda="11.6", **WHEEL),
        {"correct it (roles/mindspore/README.md)": now(version="2.2.0")},
    ),
    "another CUDA for MindSpore": lambda _: (
        msp(version="2.0.0", device="gpu", cuda="12.4"),
        {"set the one that the nodes have": now(cuda="11.6")},
    ),
    "CUDA for a MindSpore without GPUs": lambda _: (
        msp(version="2.0.0", cuda="11.6"),
        {"leave it empty": now(cuda=""), "set the device to gpu": now(device="gpu")},
    ),
    "a numpy that MindSpore does not take": lambda _: (
        msp(version="2.9.0", packages=["numpy==2.0.1"]),
        {"correct it (roles/mindspore/README.md)": now(packages=["numpy==1.26.4"])},
    ),
    "a wheel without a sum": lambda _: (
        msp(version="2.9.0", wheel_url="https://x/y.whl"),
        {"correct it": now(wheel_sha256=SUM)},
    ),
    "a sum without a wheel": lambda _: (msp(version="2.9.0", wheel_sha256=SUM), {"set both or none": now(**WHEEL)}),
    "no exact PyTorch": lambda _: (
        torch(version="2.13"),
        {"correct it (roles/pytorch/README.md)": now(version="2.13.0")},
    ),
    "an unknown PyTorch": lambda _: (
        torch(version="2.99.0"),
        {"set pytorch_python_min and pytorch_python_max": now(python_min="3.12", python_max="3.15")},
    ),
}
