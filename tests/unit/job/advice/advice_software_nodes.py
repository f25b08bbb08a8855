"""Packages, builds of Open MPI, containers and files of nodes: what readers do for each part of the advice."""

from __future__ import annotations

import re

from advice_readers import Check, now, role_input
from ansible.module_utils.trainyard.findings.findings import Finding
from ansible.module_utils.trainyard.job.placement.cluster_files import plan_inventory
from ansible.module_utils.trainyard.software import apt, compared, containers, openmpi
from ansible.module_utils.trainyard_node.software import containers as node_containers
from test_containers import GOOD, STORAGE
from test_openmpi import WANTED, state

REPOSITORY = "http://192.0.2.11/debian12/x86_64"
BRING = "bring the repository or mirror to where it has it"
LINK = "/opt/trainyard/openmpi"
BUILD_IT = "set openmpi_provider: source"
OTHER_MPI = {"mpi": {"version": "5.0.7", "path": "/usr/bin/mpirun"}}
OF_SITE = {"in_prefix": {"version": "4.1.7", "path": "/usr/mpi/bin/mpirun"}}
TO_STORAGE = "set container_runtime_storage to another folder"


# ---- packages of apt


def offers(*versions):
    return {"libnccl2": [apt.Offer(version, REPOSITORY, "NVIDIA", "NVIDIA CUDA") for version in versions]}


def package(version, offered):
    request = {"name": "libnccl2", "version": version}
    return apt.plan([request], offers(*offered), apt.read_installed(""), {}, apt.Source(REPOSITORY), False).findings


def packages(version="", begins="", offered=()):
    request = {"names": ["libnccl2"], "version": version, "begins": begins}
    return apt.missing([request], offers(*offered), apt.Source(REPOSITORY))


def transaction(simulation, held=()):
    installed = apt.Installed({}, frozenset(held))
    return apt.check_transaction(apt.Plan(versions={"new": "2"}), 0, simulation, installed, {}, [])


# ---- Open MPI


def mpi(settings, first, second):
    """Return what the role openmpi finds before its work, and without a build the check of the nodes."""
    wrong = [*openmpi.input_findings(settings, LINK, {})]
    states = [state("n1", **first), state("n2", **second)]
    request = {**settings, "options": settings["configure_options"], "existing": settings["provider"] == "existing"}
    if wrong or settings["provider"] != "distro":
        return wrong or openmpi.plan_builds(states, request)[1]
    return openmpi.compare_versions(states, settings["version"])


def built(first=None, second=None, **settings):
    role = {**WANTED, "provider": "source", "manage_system": True, "local_file": "", "url": "https://x/y.tar.bz2"}
    role |= {"configure_options": [], "verify_slots": 1, **settings}
    return Check(mpi, settings=role, first=first or {}, second=second or {})


def of_role(**changes):
    return now(settings=changes)


def of_first(**changes):
    return now(first=changes)


# ---- containers


def node(at=None, storage="/data/containers", ids=None, settings_text=None, **changes):
    """Return the check of a node by the role container_runtime."""

    def rule(storage_at, storage, manage_system, is_chosen, subuid, text, changes):
        checked = {**GOOD, "storage": {**STORAGE, **storage_at}, **changes}
        try:
            containers.with_range(subuid, "train", 2000)
        except containers.NoRangeError as error:
            checked["range_fault"] = str(error)
        checked["foreign"] = [] if text is None or node_containers._ours(text) else ["/home/train/storage.conf"]
        return containers.state_findings([checked], storage, manage_system) if is_chosen else []

    values = {"storage_at": at or {}, "storage": storage, "subuid": ids or "", "text": settings_text}
    return Check(rule, manage_system=True, is_chosen=True, changes=changes, **values)


def run_there(check, text):
    """Set what `sysctl -w` in an advice sets."""
    name, value = re.search(r"sysctl -w ([\w.]+)=(\d+)", text).groups()
    now(changes={"sysctls": {name: int(value)}})(check)


def without_namespaces(name, value):
    part = f"remove the setting from /etc/sysctl.d and run sysctl -w {name}={value}"
    return node(sysctls={name: 0}), {
        part: lambda check: run_there(check, part),
        "leave container_runtime out of trainyard_frameworks": now(is_chosen=False),
    }


def changed(**changes):
    return now(changes=changes)


def runtime(**settings):
    role = {"storage": "", "nvidia": "auto", "nvidia_toolkit_version": "", "registries": [], **settings}
    return role_input(containers.input_findings, **role)


def inventory(existing, overwrite):
    settings = {"hostfile": "hosts", "path": "/srv/hosts.yml", "folder": True, "existing": existing}
    hosts = {"hosts": [{"name": "n1", "slots": 1, "max_slots": None}], "problems": []}
    return map(Finding.from_dict, plan_inventory(hosts, {**settings, "overwrite": overwrite})["findings"])


def scripts(first, second):
    hosts = [
        {"name": name, "__oneflow_digests": {"/srv/train.py": sum_}} for name, sum_ in (("n1", first), ("n2", second))
    ]
    return compared.script_findings(hosts)


CASES = {
    # Packages.
    "a version that the repository lacks": lambda _: (
        Check(package, version="2.22.3", offered=["2.21.5-1"]),
        {"correct the version": now(version="2.21.5"), BRING: now(offered=["2.22.3-1"])},
    ),
    "a series that the repository lacks": lambda _: (
        Check(packages, begins="550.", offered=["535.1-1"]),
        {"correct the version": now(begins="535."), BRING: now(offered=["550.1-1"])},
    ),
    "a package that the repository lacks": lambda _: (
        Check(package, version="", offered=[]),
        {BRING: now(offered=["2.22.3-1"])},
    ),
    "one of several packages that the repository lacks": lambda _: (
        Check(packages),
        {BRING: now(offered=["2.22.3-1"])},
    ),
    # The whole version is the beginning of the other one.
    "several versions": lambda _: (
        Check(package, version="2.22.3", offered=["2.22.3-1", "2.22.3-1-1"]),
        {"give the whole version, such as 2.22.3-1": now(version="2.22.3-1")},
    ),
    "packages that would be removed": lambda _: (
        Check(transaction, simulation="Remv old [1]\nInst new (2 A [amd64])\n"),
        {
            "remove them by hand if that is right": now(simulation="Inst new (2 A [amd64])\n"),
            "take packages that do not conflict with them": now(simulation="Inst other (2 A [amd64])\n"),
        },
    ),
    "packages on hold": lambda _: (
        Check(transaction, simulation="Inst old [1] (2 A [amd64])\n", held=["old"]),
        {"release the hold (apt-mark unhold) if that is right": now(held=[])},
    ),
    # Open MPI.
    "a setting of Open MPI": lambda _: (built(version="4.1"), {"correct it": of_role(version="4.1.8")}),
    "an option of Open MPI's configure": lambda _: (
        built(configure_options=["--prefix=/opt/mpi"]),
        {"correct it; the prefix is openmpi_prefix": of_role(configure_options=[])},
    ),
    "packages of Open MPI without root": lambda _: (
        built(provider="distro", version="", manage_system=False),
        {
            BUILD_IT: of_role(provider="source", version="4.1.8"),
            "existing with openmpi_prefix where the nodes have one": now(
                settings={"provider": "existing", "prefix": "/usr/mpi"}, first=OF_SITE, second=OF_SITE
            ),
        },
    ),
    "a folder of CUDA without headers": lambda _: (
        built(cuda="/opt/cuda"),
        {
            "install it": now(first={"cuda": "/opt/cuda"}, second={"cuda": "/opt/cuda"}),
            "set openmpi_cuda to auto or none": of_role(cuda="auto"),
        },
    ),
    "CUDA on one of the nodes": lambda _: (
        built({"cuda": "/usr/local/cuda", "ucx": "/usr"}, {"ucx": "/usr"}),
        {"make it as on n1": now(second={"cuda": "/usr/local/cuda"}), "set openmpi_cuda: none": of_role(cuda="none")},
    ),
    "a foreign folder": lambda _: (
        built({"prefix_kind": "foreign"}),
        {
            "remove it": of_first(prefix_kind="none"),
            "set openmpi_prefix to another folder": now(
                settings={"prefix": "/opt/mpi/4"}, first={"prefix_kind": "none"}
            ),
        },
    ),
    "too little room for a build": lambda _: (
        built({"free_mb": 100}),
        {"lower openmpi_min_free_mb": of_role(min_free_mb=100)},
    ),
    "no link to Open MPI": lambda _: (
        built({"link_kind": "foreign"}),
        {"give that folder another name": of_first(link_kind="none")},
    ),
    "no Open MPI in a folder": lambda _: (
        built(second=OF_SITE, provider="existing", version=""),
        {
            "correct openmpi_prefix (of an environment module: `module show` names it)": now(
                settings={"prefix": "/usr/mpi"}, first=OF_SITE
            ),
            "install it there": now(first=OF_SITE),
        },
    ),
    "another Open MPI on one of the nodes": lambda _: (
        built(second=OTHER_MPI, provider="distro", version=""),
        {
            "make the nodes equal: the same release of the operating system": now(first=OTHER_MPI),
            BUILD_IT: of_role(provider="source", version="4.1.8"),
        },
    ),
    "another Open MPI than the requested one": lambda _: (
        built(provider="distro"),
        {"correct openmpi_version": of_role(version="4.1.4"), BUILD_IT: of_role(provider="source")},
    ),
    # Containers.
    "a system whose packages are not known": lambda _: (
        node(package_manager="dnf"),
        {
            "install Podman, newuidmap and crun by hand, and set container_runtime_manage_system to false": now(
                manage_system=False
            )
        },
    ),
    "no user for containers": lambda _: (
        node(user=None),
        {
            "run site.yml (role node_baseline) there": changed(user=GOOD["user"]),
            "correct container_runtime_user": changed(user=GOOD["user"]),
        },
    ),
    "an old Podman on a node": lambda _: (
        node(podman="podman version 3.0.1"),
        {
            "use Debian 12, Ubuntu 24.04 or newer": changed(podman="podman version 4.3.1"),
            "install a newer Podman by hand": changed(podman="podman version 4.3.1"),
        },
    ),
    "an old Podman of apt": lambda _: (
        node(podman="", candidates={"podman": "3.4.4+ds1"}),
        {
            "use Debian 12, Ubuntu 24.04 or newer": changed(candidates={"podman": "4.3.1"}),
            "give apt a source whose newer Podman it prefers (a pin)": changed(candidates={"podman": "4.3.1"}),
        },
    ),
    "no Apptainer for apt": lambda _: (
        node(candidates={"crun": "1", "apptainer": ""}),
        {
            "give apt a source that has it (backports, a mirror)": changed(candidates={"crun": "1", "apptainer": "1"}),
            "set container_runtime_apptainer: false": changed(candidates={"crun": "1"}),
        },
    ),
    "no such package for apt": lambda _: (
        node(candidates={"podman": "4.3.1", "crun": ""}),
        {
            "give apt a source that has it (backports, a mirror)": changed(candidates={"podman": "4.3.1", "crun": "1"}),
            "name others in container_runtime_packages": changed(candidates={"podman": "4.3.1", "runc": "1"}),
        },
    ),
    "no user namespaces": lambda _: without_namespaces("user.max_user_namespaces", 28633),
    "no user namespaces for users": lambda _: without_namespaces("kernel.unprivileged_userns_clone", 1),
    "no ids for containers": lambda _: (
        node(ids="all:0:600100000\n"),
        {
            "remove users who are gone from /etc/subuid and /etc/subgid": now(subuid=""),
            "give train 65536 ids by hand": now(subuid="all:0:600100000\ntrain:700000000:65536\n"),
        },
    ),
    "settings of somebody else": lambda _: (
        node(settings_text="[storage]\n"),
        {
            "move it away": now(text=None),
            f"begin it with the line '{containers.MARK}' to let the role replace it": now(
                text=f"{containers.MARK}\n[storage]\n"
            ),
        },
    ),
    "images on a network file system": lambda _: (
        node({"file_system": "nfs4"}),
        {"set container_runtime_storage to a folder on a local disk": now(storage_at={"file_system": "ext4"})},
    ),
    "a folder of images below one that others change": lambda _: (
        node({"unsafe": "/data"}),
        {
            "give /data to root (chown root, chmod go-w)": now(storage_at={"unsafe": ""}),
            TO_STORAGE: now(storage_at={"unsafe": ""}),
        },
    ),
    "a folder of images below one that all change": lambda _: (
        node({"unsafe": "/tmp"}),  # noqa: S108
        {TO_STORAGE: now(storage_at={"unsafe": ""})},
    ),
    "a folder of images of somebody else": lambda _: (
        node({"owner": "eve"}),
        {"move it away": now(storage_at={"owner": ""}), TO_STORAGE: now(storage_at={"owner": "train"})},
    ),
    "too little room for images": lambda _: (
        node({"free_gib": 3}),
        {
            "set container_runtime_storage to another disk": now(storage_at={"free_gib": 30}),
            "lower container_runtime_free_gib": now(storage_at={"needed_gib": 3}),
        },
    ),
    "a setting of containers": lambda _: (
        runtime(registries=[{"location": "https://registry.example.org"}]),
        {"correct it": now(registries=[{"location": "registry.example.org"}])},
    ),
    # Files.
    "a file that is there": lambda _: (
        Check(inventory, existing="other", overwrite=False),
        {
            "name another file": now(existing=""),
            "move this one away": now(existing=""),
            "set hostfile_overwrite: true": now(overwrite=True),
        },
    ),
    "other scripts for OneFlow": lambda _: (
        Check(scripts, first="a", second="b"),
        {
            "bring the same one to all nodes": now(second="a"),
            "a job's own scripts are best sent with it (job_source)": now(second="a"),
        },
    ),
}
# As in test_followed_advice.
ELSEWHERE = {
    "apt, pip or a container program answers": (
        # Repositories.
        r"check whether it is the right repository, then run there: apt-get update --allow-releaseinfo-change",
        r"compare (the fingerprint with the vendor's documentation; do not take a key that does not fit"
        r"|nvidia_repository_key_fingerprint with the key that the repository is signed with)",
        r"correct (nvidia_repository_url, nvidia_repository_distro nvidia_repository_arch"
        r"|the address the release in /etc/apt/sources.list /etc/apt/sources.list.d)",
        r"install the (certificate of the authority there"
        r"|distribution's keys there \(debian-archive-keyring, ubuntu-keyring\))",
        r"name all packages that depend on one another, at one version; `apt-get check` shows older faults",
        r"name the mirror's key with Signed-By in /etc/apt/sources.list.d",
        r"remove (one of the two in /etc/apt/sources.list.d|their pins in /etc/apt/preferences.d)",
        r"repair apt|run without the lock|take them another way \(wheel, archive, runfile\)",
        r"see (apt|Podman|Apptainer)'s message",
        r"set the clock|bring the mirror up to date|sign the mirror name its key",
        r"start it|see how the node reaches it \(name, proxy, firewall\)",
        r"take a mirror that carries it|the provider network_repo",
        r"take another mirror(, as somebody a broken mirror has changed it; do not switch the check off"
        r"|; a proxy's old copy tampering look like this, too)",
        r"take the repository the key of this release of the system \(for Debian 13 NVIDIA has another key\)",
        r"a mirror that signs anew|wait until the mirror is complete",
        # Environments and builds.
        r"check that ssh between the nodes works \(role ssh_mesh\) firewalls let their ports through",
        r"choose (another version of [^ ]+|a version with a wheel)",
        r"build one name its folder in \S+_find_links|name a folder with a wheel of \S+ in \S+_find_links",
        r"correct the sum of the wheel|pin versions that do, in the list of packages in the constraints",
        r"create the user first \(role node_baseline\)",
        r"find out who put it there, remove the build on that node run site\.yml again",
        r"give all nodes one source of packages \(\S+_index_url\) run site\.yml again for all of them",
        r"install python\S+-venv \(Debian, Ubuntu\)|name (an interpreter that has it|another interpreter)",
        r"name a Python that only root can change|give it to root \(chown -R root, chmod -R go-w\)",
        r"name the index that has it in pytorch_builds_url run site\.yml again",
        # Containers.
        r"compare /etc/subuid /etc/subgid with the user; newuidmap needs its setuid bit the capability cap_setuid a "
        r"container as node the capability SYS_ADMIN",
        r"give the user X ids by hand in /etc/subuid /etc/subgid",
        r"make room \(podman system prune as that user\)|set container_runtime_storage to another disk",
        r"install (the package apptainer|the package uidmap by hand|Podman by hand"
        r"|squashfuse( \(package squashfuse\), which mounts images)?"
        r"(: without it, images are unpacked, which no container with a hidden part of /proc can)?)",
        r"run (site\.yml with container_runtime_manage_system: true|there: loginctl enable-linger USER"
        r"|there: nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml"
        r"|modprobe fuse there; a container as node needs the device /dev/fuse \(podman run --device /dev/fuse\))",
        r"see (the settings user\.max_user_namespaces, kernel\.unprivileged_userns_clone and, on Ubuntu, "
        r"kernel\.apparmor_restrict_unprivileged_userns"
        r"|what changes Podman's settings: podman info as that user, /etc/containers, ~/.config/containers"
        r"|what changes Apptainer's settings: /etc/apptainer/apptainer.conf)",
    )
}
