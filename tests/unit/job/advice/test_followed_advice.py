"""Advice of findings about launches and sites is followed: its finding is gone then, and no other one has come.

`CASES` are launches, or checks of site.yml, with a finding, and what the reader does for each part of its advice.
`ELSEWHERE` are the parts that no test can follow, by the reason. All advice in the code has to be in one of the two.
"""

from __future__ import annotations

import ast
import functools
import itertools
import os
import re
from pathlib import Path

import advice_cluster
import advice_hosts
import advice_kubernetes
import advice_networks
import advice_nvidia
import advice_nvidia_drivers
import advice_nvidia_software
import advice_rank_tables
import advice_scripts
import advice_site
import advice_site_software
import advice_slurm
import advice_software
import advice_software_environments
import advice_software_nodes
import ansible.module_utils
import pytest
from advice_hosts import CLOCK
from advice_readers import follow
from ansible.module_utils.trainyard_controller import planning, scheduler_clients
from ansible.module_utils.trainyard_controller.device_queue import DeviceQueue
from ansible.module_utils.trainyard_node.job.plan import preflight

CASES = {
    **advice_networks.CASES,
    **advice_hosts.CASES,
    **advice_software.CASES,
    **advice_rank_tables.CASES,
    **advice_slurm.CASES,
    **advice_kubernetes.CASES,
    **advice_scripts.CASES,
    **advice_site.CASES,
    **advice_site_software.CASES,
    **advice_cluster.CASES,
    **advice_nvidia.CASES,
    **advice_nvidia_drivers.CASES,
    **advice_nvidia_software.CASES,
    **advice_software_nodes.CASES,
    **advice_software_environments.CASES,
}
# Parts of advice that no launch of a test can follow, as patterns, by the reason.
ELSEWHERE = {
    **advice_software_nodes.ELSEWHERE,
    "NVIDIA's software of nodes has to be changed": (
        r"upgrade it there \(docs/nvidia.md\)",
        r"check `mokutil --sb-state`; with Secure Boot on,",
        r"check the driver \(nvidia-smi, dmesg\), run playbooks/verify.yml",
        r"give it to root \(chown -R root, chmod -R go-w\)",
        r"install (a driver with \w+ modules there|such a gcc as well: see the role cuda_toolkit)",
        r"install it on the machine that has this container give the container its GPUs",
        r"install that kernel's headers",
        r"install the [^,]+, which has \S+",
        r"remove \S+ run the role container_runtime, which writes it again",
        r"remove the files of the other driver: \S+",
        r"remove the other \w+ let this role install both",
        r"repair it by hand, as its previous driver is gone",
        r"repair the toolkit, MPI NCCL it names; cuda_toolkit_verify_mpi, _nccl say which are tried",
        r"run playbooks/nvidia_reboot.yml -e nvidia_driver_reboot=true",
        r"reboot it, set nvidia_driver_reboot: true",
        r"run site.yml( again| the vendor's installer again| with an nvidia_driver_provider that installs one);?",
        r"if it stays so, see the role's provider",
        r"run the role \w+( again| (on|over) all (of them|nodes))?",
        r"(?<!; )run (it there: ?\S*|\S+ (\S+ )?there)",
        r"run this again( when it is idle set nvidia_driver_upgrade_busy: wait|: it begins with this node)?",
        r"find the cause",
        r"see (`modprobe nvidia` `dmesg`|`dmesg` for lines with Xid NVRM|the table)",
        r"see the roles cuda_toolkit, nccl openmpi remove .trainyard.json",
        r"set one \S+_provider, \S+_version \S+_cuda for all nodes",
        r"sshd takes the first SetEnv only: look for another one in /etc/ssh/sshd_config sshd_config.d",
        r"; other hardware is a cluster of its own",
    ),
    "the system of nodes has to be changed": (
        r"find the other (file that sets it|line service that resolves this name) \([^)]*\)",
        r"run on the node: \S+",
        r"see `apt-get check`; remove what another driver has left",
        r"set UsePAM yes in sshd_config",
    ),
    "nothing has to be done": (
        r"go on( without them| if the hosts have it from elsewhere| \([^)]*\)|: [^,;]+)?",
        r"look up (its oldest driver|which driver CUDA it needs); nothing was checked for it",
    ),
    "software of nodes has to be changed": (
        r"run site\.yml( \(role \w+\) on [^ ;]+| to make them equal| on all nodes| with the same programs everywhere)?"
        r"( with [\w ]+ in trainyard_frameworks)?",
        r"an address that ansible_host does not give them belongs into their ssh_mesh_extra_principals",
        r"install (it( \([^)]*\))?|such a version \([^)]*\)|a newer one(: role openmpi)?)",
        r"install (the image's on the nodes \(openmpi_version\)|\S+ for that Python on the nodes)",
        r"add [^ ]+ to (\S+_extra_packages, each as NAME==VERSION|the environment's packages \([^)]*\))",
        r"set (pytorch_torchvision: auto|python_runtime_compiler: true)",
        r"put container_runtime into trainyard_frameworks +\(docs/images.md\)",
        r"disable Secure Boot",
        r"(install|remove) (driver )?X( \(X\))?(, install X \(X\))?",
        r"check `lspci -d 10de:`( the machine's own log)?",
        r"run `dpkg --configure -a` `apt -f install`",
        r"remove it the way it came \(apt purge, nvidia-uninstall\)",
        r"make its environment on every node yourself name it in job_venv \(docs/oneflow.md, job_oneflow_style: \S+\)",
        r"repair the driver",
        r"upgrade the driver: docs/nvidia.md",
    ),
    "hardware or the system has to be changed": (
        r"check (npu-smi info -t health|cable, optical module switch port)",
        r"check routes firewall (between|from) \S+ (to )?[^ ,]+",
        r"check what keeps the time there \(timedatectl, chronyc sources\)",
        r"see cable switch port \(ip -statistics link\) what sets up the network there",
        r"see the GPUs, their links the kernel's log; run it there: \S+",
        r"see what has it \(ps -e --sort=-rss; files in /dev/shm\)",
        r"set it with hostnamectl set-hostname",
        r"make that user there",
        r"make it give it to \S+",
        r"make it there",
        r"put it there",
        r"bring it there",
        r"mount it read-write",
        r"end what holds the ports of the head node",
    ),
    "a disk has to be full, or closed to root": (
        r"give the right to read",
        r"make room( in [^ ,]+)?",
        r"set trainyard_(runs|state) to another folder",
        r"set trainyard_become: true",
    ),
    "hosts of several kinds share a disk, or an index has no wheel for them": (
        r"set trainyard_root to a path that is local on each host",
        r"if nothing uses that environment, remove it",
        r"name a wheel that fits in \S+, for these hosts alone if others have another machine",
        r"choose a version of \S+ that has a wheel for it, hosts that fit",
        r"name an index folder with such a wheel \(\S+, \S+\)",
    ),
    "another user logs in": (
        r"leave trainyard_manage_system out",
        r"move it away if nobody needs it",
        r"set ansible_user to \S+ there trainyard_user to the login of all hosts",
        r"set trainyard_root to a folder that the user can make on all hosts",
        r"set trainyard_root, trainyard_state ask the administrator for: sudo install -d -o \S+ \S+",
    ),
    "an administrator installs what a user may not": (
        r"ask the administrator for: .+",
        r"install python\S+( as the system has it, with venv inside| with its modules venv ensurepip)?( \(\S+\))?",
        r"name an interpreter that (makes virtual environments \(\S+\)|has it)",
    ),
    "the client and the API of Kubernetes answer": (
        r"ask the administrator of the cluster for (them|the rights of docs/kubernetes.md)",
        r"check the cluster's own events logs",
        r"correct the variable in the message",
        r"create (it|the Secret ConfigMap that it names in the job's namespace)",
        r"find what holds it: kubectl -n \S+ describe \S+ \S+",
        r"have it installed",
        r"KUBECONFIG in the environment",
        r"log in again",
        r"(start the job again: each run has its own name|wait a moment, then start the job again)",
        r"the names of claims Secrets in the job file",
        r"the network a VPN; try: kubectl version",
        r"run make kubernetes, or: pip install --require-hashes -r requirements/kubernetes.txt",
        # A job that has started lacks its image.
        r"check job_image job_kubernetes.image_pull_secrets for a registry that requires a login",
    ),
    "hosts answer over ssh": (
        r"allow (\S+ without one \(NOPASSWD in sudoers\)|sudo for the connecting user)",
        r"check ansible_host ansible_port, as the jump host knows them",
        r"check its owner space",
        r"check the output of a login there, whether its shell runs commands ansible_python_interpreter",
        r"correct it \(-K\)",
        r"correct it \(-k ansible_password\) ansible_user",
        r"give the password with -K",
        r"install python3",
        r"beside it name that",
        r"install sshpass on the controller",
        r"let the shell's profile print only in a terminal \(\[ -t 1 \] in .*\)",
        r"log in (by a key: ansible_ssh_private_key_file|once: ssh \S+; compare the key that it shows answer yes)",
        r"log in there once by itself check ProxyJump in ansible_ssh_common_args",
        r"name another one",
        r"in ansible_python_interpreter",
        r"repair it leave it out",
        r"to see more: \S+ -vvv",
        r"run it again( with -vvv, which shows all of it)?",
        r"set ansible_ssh_private_key_file ansible_ssh_common_args: -o IdentitiesOnly=yes",
        r"set ansible_user ansible_ssh_private_key_file",
        r"bring the key there: ssh-copy-id USER@\S+; with a password add -k",
        r"set ansible_remote_tmp",
        r"set trainyard_become: false( if the user needs no root)?",
    ),
    "mounts are read in a container, by test_image_facts": (r"correct job_mounts",),
    "ports are drawn anew by each launch": (r"start the job again: it takes another port",),
}


@pytest.fixture(autouse=True)
def simulated(monkeypatch):
    """Wait in no time; have a network on which nobody answers, a cluster of Kubernetes, and files closed to root."""
    access = os.access
    monkeypatch.setattr(os, "access", lambda path, *mode: Path(path).name != "closed" and access(path, *mode))
    queue = functools.partial(DeviceQueue, clock=lambda: CLOCK.now, sleep=CLOCK.sleep)
    monkeypatch.setattr(planning, "DeviceQueue", queue)
    monkeypatch.setattr(scheduler_clients, "Cluster", advice_kubernetes.Cluster)
    monkeypatch.setattr(preflight, "_connect_error", lambda where: "no answer" if where[0].startswith("10.66.") else "")


# ---- what is advised

CODE = Path(ansible.module_utils.__path__[-1])
FILES = (
    "trainyard/cluster/*.py",
    "trainyard/hardware/interfaces.py",
    "trainyard/job/launchers/*.py",
    "trainyard/job/placement/p*.py",
    "trainyard/job/placement/rank_table.py",
    "trainyard/job/plan/*.py",
    "trainyard/job/schedulers/*.py",
    "trainyard/job/schedulers/kubernetes/*.py",
    "trainyard/nvidia/*.py",
    "trainyard/software/*.py",
    "trainyard_node/cluster/*.py",
    "trainyard_node/nvidia/*.py",
    "trainyard_node/software/*.py",
    "trainyard_node/job/plan/*.py",
    "trainyard_node/job/run/health_gate.py",
    "trainyard_controller/kubernetes_*.py",
    "trainyard_controller/planning.py",
    "trainyard_controller/source_folder.py",
)
VERBS = (
    "add|allow|apt-mark|ask|begin|boot|bring|check|choose|compare|copy|correct|create|end|find|free some|give|go on|"
    "have it|install|keep|launch|leave|let|log in|look up|lower|make|mount|move|name|pull|put|raise|release|remove|"
    "rename|repair|replace|run|see|set|start|stop|take|use|wait|write"
)


def text_of(node):
    """Return a text in the code, with X for each of its values; "" for other code."""
    if isinstance(node, ast.Call) and ast.unparse(node.func) == "override":
        fields = ", ".join(f"{each.arg}: {text_of(each.value) or 'X'}" if each.arg else "X" for each in node.keywords)
        fields = fields.replace("X, ", "X").replace(", X", "X")
        return f"nvidia_stack_overrides: {{{text_of(node.args[0]) or 'X'}: {{{fields}}}}}"
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    return "".join(text_of(part) or "X" for part in node.values) if isinstance(node, ast.JoinedStr) else ""


def advised(path):
    """Return the texts of a file that begin with a verb, and those that are the action of a finding."""
    nodes = [*ast.walk(ast.parse(path.read_text()))]
    inner = {id(part) for node in nodes if isinstance(node, ast.JoinedStr) for part in node.values}
    texts = {text_of(node) for node in nodes if id(node) not in inner}
    actions = {text_of(action_of(node)) for node in nodes}
    texts = {text for text in texts if re.match(f"({VERBS}) |nvidia_stack_overrides: {{", text)}
    # One of them is the name of a check, and a pattern is none.
    texts = {text for text in texts - {"name for the certificate"} if "(?P<" not in text}
    return texts | actions | remedies(nodes) - {""}


def remedies(nodes):
    """Return the last texts of the rows of tables, whose names end in FAULTS."""
    tables = [node for node in nodes if isinstance(node, ast.AnnAssign) and isinstance(node.value, ast.Tuple)]
    rows = [row for each in tables if ast.unparse(each.target).endswith("FAULTS") for row in each.value.elts]
    return {text_of(row.elts[-1]) for row in rows if isinstance(row, ast.Tuple)}


def action_of(node):
    """Return the code of an action: what is assigned to this name, or the fourth argument of a finding."""
    if isinstance(node, ast.Assign) and [getattr(target, "id", "") for target in node.targets] == ["action"]:
        return node.value
    is_finding = isinstance(node, ast.Call) and getattr(node.func, "id", "") in ("Finding", "Warned")
    return node.args[3] if is_finding and len(node.args) > 3 else None


@pytest.fixture
def launches(tmp_path):
    """Return what launches a world with a folder of its own, and how many there were."""

    def launch(world):
        CLOCK.now = 0.0
        folder = tmp_path / f"launch{len(list(tmp_path.glob('launch*')))}"
        folder.mkdir()
        return world.launch(folder)

    return launch


def made(name, folder):
    folder.mkdir(parents=True)
    return CASES[name](folder)


def same_problem(finding):
    return finding.check, finding.expected, finding.action


def what(findings):
    return {(each.host, each.check, each.found) for each in findings}


# The actions of cases that were launched here.
ACTIONS = {}


def found_by(name, tmp_path, launches):
    """Return the finding whose advice has all parts of a case, and all findings of the launch."""
    world, parts = made(name, tmp_path / "first")
    findings = launches(world)
    fitting = [each for each in findings if all(part in each.action for part in parts)]
    assert fitting, f"no finding with {list(parts)}: {findings}"
    ACTIONS[name] = fitting[0].action
    return fitting[0], findings, parts


def not_followed(action, parts=()):
    """Return what is left of an advice without its `parts` and those that are in ELSEWHERE."""
    for part in sorted(parts, key=len, reverse=True):
        action = action.replace(part, "")
    action = re.sub(r",? (or|and) ", " ", action)
    for each in itertools.chain(*ELSEWHERE.values()):
        action = re.sub(each, "", action)
    return re.sub(r"\b(or|and|X)\b|\W", "", action) and action


@pytest.mark.parametrize("name", CASES)
def test_each_part_of_an_advice_helps(name, tmp_path, launches):
    finding, before, parts = found_by(name, tmp_path, launches)
    rest = not_followed(finding.action, parts)
    assert not rest, f"nobody follows {rest!r} of {finding.action!r}"
    known = what(each for each in before if same_problem(each) != same_problem(finding))
    for number, part in enumerate(parts):
        world, changes = made(name, tmp_path / str(number))
        # Parts may name the folder of their world.
        follow(world, part, [*changes.values()][number])
        after = launches(world)
        assert what(after) <= known, f"{part!r} leads to {after}"


def test_all_advice_is_followed_or_asks_for_a_machine(tmp_path, launches):
    for name in CASES.keys() - ACTIONS.keys():
        found_by(name, tmp_path / str(len(ACTIONS)), launches)
    files = [path for each in FILES for path in sorted(CODE.glob(each))]
    missing = [
        f"{path.relative_to(CODE)}: {text}"
        for path in files
        for text in advised(path)
        if not_followed(text) and not any(re.search(as_pattern(text), action) for action in ACTIONS.values())
    ]
    assert len(files) > 20 and not missing, "\n".join(missing)


def as_pattern(text):
    return re.escape(text).replace("X", ".*")
