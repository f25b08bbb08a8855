"""Rootless containers: ranges of ids, file systems, findings on nodes, and what a container like a job's showed."""

import io
import json
import os
import pwd
import tarfile

import container_runtime
import pytest
from ansible.module_utils.testing import patch_module_args
from ansible.module_utils.trainyard.software import containers
from ansible.module_utils.trainyard_node.machine.tree import Tree
from ansible.module_utils.trainyard_node.software import container_setup

# Captured: /etc/subuid of Debian 12, and Podman 4.3.1's outputs there with one fault each.
SUBUID = "ops:100000:65536\n"
NO_NEWUIDMAP = (
    'time="2026-11-26T10:08:50Z" level=error msg="invalid internal status, try resetting the pause process with '
    '\\"podman system migrate\\": command required for rootless mode with multiple IDs: exec: \\"newuidmap\\": '
    'executable file not found in $PATH"\n'
)
NO_CAPABILITY = (
    'time="2026-11-26T10:08:50Z" level=error msg="running `/usr/bin/newuidmap 2554 0 2000 1 1 165536 65536`: '
    'newuidmap: write to uid_map failed: Operation not permitted\\n"\n'
)
ON_OVERLAY = (
    "Error: 'overlay' is not supported over overlayfs, a mount_program is required: backing file system is unsupported "
    "for this graph driver\n"
)
BAD_NAME = (
    "Getting image source signatures\nWriting manifest to image destination\nStoring signatures\n"
    'Error: normalizing name "localhost/_x:1": invalid reference format\n'
)
# Captured: `apt-cache policy podman apptainer no-such` of Debian 12.
POLICY = """podman:
  Installed: 4.3.1+ds1-8+deb12u1+b3
  Candidate: 4.3.1+ds1-8+deb12u1+b3
  Version table:
 *** 4.3.1+ds1-8+deb12u1+b3 500
        500 http://deb.example.org/debian bookworm/main amd64 Packages
apptainer:
  Installed: (none)
  Candidate: (none)
  Version table:
"""


@pytest.mark.parametrize(
    ("text", "used", "line"),
    [
        ("", [], "train:100000:65536"),
        (SUBUID, [], "train:165536:65536"),
        # A gap that is too small, one that is large enough, and lines in any order.
        ("b:165600:65536\na:100000:65536\n", [], "train:231136:65536"),
        ("b:300000:65536\na:100000:65536\n", [], "train:165536:65536"),
        # Real users of a directory service may have such numbers.
        (SUBUID, [200_000], "train:200001:65536"),
        ("damaged\n# comment\nops:100000:65536", [], "train:165536:65536"),
        # Podman needs the whole range: an image may have files of the user nobody (65534).
        ("train:100000:1000\n", [], "train:101000:65536"),
    ],
)
def test_a_range_overlaps_no_other(text, used, line):
    after = containers.with_range(text, "train", 2000, used)
    assert after.splitlines() == [*text.splitlines(), line] and after.endswith("\n")
    assert containers.with_range(after, "train", 2000, used) == after


@pytest.mark.parametrize("text", ["train:100000:65536\n", "2000:100000:65536", "ops:1:2\ntrain:100000:100000\n"])
def test_an_existing_range_stays(text):
    assert containers.with_range(text, "train", 2000) == text


def test_a_range_never_holds_the_user_itself():
    assert containers.with_range("", "train", 100_500) == "train:100501:65536\n"


def test_no_range_is_free():
    with pytest.raises(containers.NoRangeError, match="no 65536 ids in a row are free from 100000 to 600100000"):
        containers.with_range("all:0:600100000\n", "train", 2000)


MOUNTS = (
    "overlay / overlay rw 0 0\n/dev/sda1 /data ext4 rw 0 0\nfiler:/home /home nfs4 rw 0 0\n"
    "/dev/sdb1 /data/with\\040space xfs rw 0 0\nshort\n"
)


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/", "overlay"),
        ("/data", "ext4"),
        ("/data/containers/train", "ext4"),
        ("/database", "overlay"),
        ("/data/with space/x", "xfs"),
        ("/home/train", "nfs4"),
    ],
)
def test_the_file_system_of_a_path(path, kind):
    assert containers.file_system(MOUNTS, path) == kind
    assert containers.file_system("", path) == ""


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("podman version 4.3.1\n", (4, 3)),
        ("4.3.1+ds1-8+deb12u1+b3", (4, 3)),
        ("1:5.4.2+ds1-2", (5, 4)),
        ("3.0.1+dfsg1-3+deb11u5", (3, 0)),
        ("", None),
        ("no answer within 30 s", None),
    ],
)
def test_podman_versions(text, version):
    assert containers.podman_version(text) == version


def test_what_apt_offers():
    offered = {"podman": "4.3.1+ds1-8+deb12u1+b3", "apptainer": "", "no-such": ""}
    assert containers.candidates(POLICY, ["podman", "apptainer", "no-such"]) == offered
    assert containers.candidates("N: Unable to locate package no-such\n", ["no-such"]) == {"no-such": ""}


GOOD = {
    **{"host": "n1", "name": "train", "user": {"uid": 2000, "gid": 2000, "home": "/home/train"}},
    **{"package_manager": "apt", "missing_packages": [], "candidates": {}, "podman": "podman version 4.3.1\n"},
    **{"files": {}, "linger": True, "sysctls": {"user.max_user_namespaces": 96551}, "ranges": {}, "range_fault": ""},
    **{"foreign": [], "user_files": []},
}
STORAGE = {
    **{"path": "/data/containers/train", "exists": True, "file_system": "ext4", "free_gib": None, "needed_gib": 20},
    **{"owner": "train", "unsafe": ""},
}


def found(storage="/data/containers", manage_system=True, at=None, **changes):
    state = {**GOOD, "storage": {**STORAGE, **(at or {})}, **changes}
    findings = containers.state_findings([state], storage, manage_system)
    assert {finding.host for finding in findings} <= {"n1"}
    return [(finding.check, finding.found, finding.action) for finding in findings]


def test_a_node_in_order_has_no_finding():
    assert found() == []
    assert found(missing_packages=["podman"], podman="", candidates={"podman": "4.3.1"}) == []
    # Without lists, apt knows no candidate; the installation fetches them.
    assert found(missing_packages=["podman"], podman="", candidates={"podman": "", "crun": ""}) == []
    assert found(at={"exists": False, "owner": "", "free_gib": 20}) == []


@pytest.mark.parametrize(
    ("changes", "check", "text", "action"),
    [
        ({"user": None}, "user", "no user train", "node_baseline"),
        ({"package_manager": "dnf"}, "operating system", "a system with dnf", "by hand, and set container_runtime_man"),
        ({"podman": "podman version 3.0.1"}, "Podman", "Podman 3.0, the one of this", "use Debian 12, Ubuntu 24.04"),
        ({"podman": "", "candidates": {"podman": "3.4.4+ds1"}}, "Podman", "Podman 3.4, the one", "use Debian 12"),
        (
            {"candidates": {"a": "1", "apptainer": ""}},
            "package apptainer",
            "apt offers none",
            "give apt a source that has",
        ),
        ({"sysctls": {"user.max_user_namespaces": 0}}, "user namespaces", "user.max_user_namespaces is 0", "remove"),
        (
            {"sysctls": {"kernel.unprivileged_userns_clone": 0}},
            *(
                "user namespaces",
                "kernel.unprivileged_userns_clone is 0",
                "sysctl -w kernel.unprivileged_userns_clone=1",
            ),
        ),
        ({"range_fault": "/etc/subuid: no"}, "ids of containers", "/etc/subuid: no", "remove users who are gone from"),
        ({"foreign": ["/h/storage.conf"]}, "settings of the user", "/h/storage.conf, which this role", "move it away"),
        (
            {"at": {"file_system": "nfs4"}},
            "storage",
            "/data/containers/train is on nfs4",
            "to a folder on a local disk",
        ),
        ({"at": {"file_system": "fuse.sshfs"}}, "storage", "is on fuse.sshfs", "set container_runtime_storage"),
        (
            {"at": {"file_system": "overlay", "path": "/home/train/x"}, "storage": ""},
            *("storage", "/home/train/x, the user's home, is on overlay", "set container_runtime_storage"),
        ),
        ({"at": {"unsafe": "/data"}}, "storage", "/data can be changed by other users", "give /data to root"),
        ({"at": {"owner": "eve"}}, "storage", "/data/containers/train belongs to eve", "move it away"),
        ({"at": {"free_gib": 3}}, "storage", "3 GiB are free for /data/containers/train", "make room"),
    ],
)
def test_what_prevents_containers(changes, check, text, action):
    ((its_check, its_text, its_action),) = found(**changes)
    assert its_check == check and text in its_text and action in its_action


def test_a_node_that_the_role_may_not_change_can_have_another_system():
    assert found(package_manager="dnf", manage_system=False) == []


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"storage": "data"}, "container_runtime_storage is 'data'"),
        ({"storage": "/data/"}, "container_runtime_storage is '/data/'"),
        ({"storage": '/da"ta'}, "container_runtime_storage is"),
        ({"registries": [{"mirror": "m.example.org"}]}, "the entry {'mirror': 'm.example.org'}"),
        (
            {"registries": [{"location": "https://registry.example.org"}]},
            "the entry {'location': 'https://registry.example.org'}",
        ),
        ({"registries": [{"location": "registry.example.org", "tls": False}]}, "the entry"),
        ({"registries": [{"location": 'a"b'}]}, "the entry"),
        ({"registries": [{"location": "registry.example.org", "mirror": 5}]}, "the entry"),
        ({"nvidia": "gpu"}, "container_runtime_nvidia is 'gpu'"),
        ({"nvidia_toolkit_version": "1.17"}, "container_runtime_nvidia_toolkit_version is '1.17'"),
        ({"nvidia_toolkit_version": "latest"}, "container_runtime_nvidia_toolkit_version is 'latest'"),
    ],
)
def test_wrong_input(settings, text):
    good = {"storage": "/data/containers", "nvidia": True, "nvidia_toolkit_version": "1.17.8-1"}
    good["registries"] = [{"location": "r.example.org:5000/team", "insecure": True}]
    assert list(containers.input_findings({**good, "nvidia": "auto", "nvidia_toolkit_version": ""})) == []
    assert list(containers.input_findings(good)) == []
    (finding,) = containers.input_findings({**good, **settings})
    assert finding.check == "input of container_runtime" and text in finding.found


SPACES = {"net": "net:[1]", "uts": "uts:[2]", "ipc": "ipc:[3]", "pid": "pid:[4]"}
EXPECTED = {**SPACES, "uid": "2000", "nofile": "20000"}
ANSWER = "".join(f"trainyard {name}={value}\n" for name, value in {**EXPECTED, "devices": "/dev/nvidia*"}.items())
PROBE = {
    **{"host": "n1", "user": "train", "fault": "", "import": [0, ""], "run": [0, ANSWER], "expected": EXPECTED},
    **{"written_by": 2000, "devices": [], "sysctls": {}, "unranged": []},
}


def probed(**changes):
    return [(each.check, each.found, each.action) for each in containers.probe_findings([{**PROBE, **changes}])]


def test_a_container_in_order_has_no_finding():
    assert probed() == []
    seen = ANSWER.replace("/dev/nvidia*", "/dev/nvidia0 /dev/nvidiactl")
    assert probed(devices=["/dev/nvidia0", "/dev/nvidiactl"], run=[0, seen]) == []


@pytest.mark.parametrize(
    ("changes", "check", "text"),
    [
        ({"fault": "no program podman"}, "container", "no program podman"),
        ({"unranged": ["/etc/subgid"]}, "ids of containers", "no range for train in /etc/subgid"),
        ({"run": [0, ANSWER.replace("uid=2000", "uid=0")]}, "user in the container", "the user has uid 0 in the"),
        ({"run": [0, ANSWER.replace("net:[1]", "net:[9]")]}, "namespaces of the container", "net:[9] as namespace net"),
        ({"run": [0, ANSWER.replace("=20000", "=1024")]}, "limits of the container", "1024 open files in the"),
        ({"written_by": None}, "folder in the container", "no file"),
        ({"written_by": 165536}, "folder in the container", "a file of uid 165536"),
        ({"devices": ["/dev/nvidia0"]}, "GPUs in the container", "no /dev/nvidia0"),
    ],
)
def test_what_a_container_shows(changes, check, text):
    ((its_check, its_text, _),) = probed(**changes)
    assert its_check == check and text in its_text


# Captured: Apptainer 1.4.5 on Debian 13, without squashfuse (here and in a container), and without /dev/fuse.
UNPACKED = "INFO:    Converting SIF file to temporary sandbox...\n"
NO_PROC = (
    f"{UNPACKED}FATAL:   while extracting /x.sif: root filesystem extraction failed: extract command failed: FATAL:   "
    "container creation failed: mount hook function failure: mount proc->/proc error: while mounting proc: can't mount "
    "proc filesystem to /proc: operation not permitted\n: exit status 255\n"
)
NO_FUSE = (
    "INFO:    gocryptfs not found, will not be able to use gocryptfs\n"
    "FATAL:   container creation failed: image driver mount failure: image driver squashfuse_ll instance exited with "
    "error: squashfuse_ll exited: fuse: device not found, try 'modprobe fuse' first\n"
)


@pytest.mark.parametrize(
    ("changes", "text", "action"),
    [
        ({"run": [255, NO_FUSE]}, "no SIF file: container creation failed: image driver mount", "modprobe fuse"),
        ({"run": [255, NO_PROC]}, "no SIF file: while extracting /x.sif: root", "install squashfuse: without"),
        ({"run": [127, "No such file or directory"]}, "no SIF file: No such file", "install the package apptainer"),
        ({"run": [1, ""]}, "no SIF file: exit status 1", "see Apptainer's message"),
        ({"run": [0, UNPACKED + ANSWER]}, "it unpacks the whole image", "install squashfuse"),
        ({"run": [0, ANSWER.replace("uid=2000", "uid=0")]}, "the user has uid 0", "/etc/apptainer/apptainer.conf"),
        ({"written_by": None}, "no file", "/etc/apptainer/apptainer.conf"),
    ],
)
def test_what_apptainer_shows(changes, text, action):
    good = {"run": [0, ANSWER], "written_by": 2000}
    assert probed(apptainer=good) == []
    ((_, its_text, its_action),) = probed(apptainer={**good, **changes})
    assert text in its_text and action in its_action


@pytest.mark.parametrize(
    ("output", "text", "action"),
    [
        (NO_NEWUIDMAP, "newuidmap is missing: invalid internal status", "install the package uidmap"),
        (NO_CAPABILITY, "newuidmap may not give the user its ids: running `/usr/bin/newuidmap", "setuid bit"),
        (
            ON_OVERLAY,
            "overlay cannot use the file system of the storage: 'overlay' is",
            "set container_runtime_storage",
        ),
        (BAD_NAME, 'not stored: normalizing name "localhost/_x:1": invalid', "see Podman's message"),
        ("Error: writing blob: no space left on device", "the disk is full: writing blob", "podman system prune"),
        ("cannot clone: Operation not permitted\nError: cannot re-exec process", "no user namespace", "the settings"),
        ("", "a small image was not stored: exit status 125", "see Podman's message"),
    ],
)
def test_why_a_container_does_not_start(output, text, action):
    ((check, its_text, its_action),) = probed(**{"import": [125, output]})
    assert check == "container" and text in its_text and action in its_action


def test_apparmor_is_named_where_it_restricts_user_namespaces():
    sysctls = {"kernel.apparmor_restrict_unprivileged_userns": 1}
    ((_, text, _),) = probed(run=[126, "Error: cannot clone: Permission denied"], sysctls=sysctls)
    assert "a container did not start: the kernel lets this user have no user namespace: cannot clone" in text
    assert text.endswith("(kernel.apparmor_restrict_unprivileged_userns is 1)")


ME = pwd.getpwuid(os.getuid()).pw_name


@pytest.fixture
def home(tmp_path, monkeypatch):
    account = pwd.getpwnam(ME)
    entry = pwd.struct_passwd((*account[:5], str(tmp_path), account.pw_shell))
    monkeypatch.setattr(pwd, "getpwnam", lambda name: entry if name == ME else account._replace(pw_name=name))
    return tmp_path


def run(step, capsys, user=ME, **given):
    arguments = {"step": step, "host": "n1", "user": user, **given}
    with patch_module_args(arguments), pytest.raises(SystemExit) as ended:
        container_runtime.main()
    answer = json.loads(capsys.readouterr().out)
    assert bool(ended.value.code) == bool(answer.get("failed"))
    return answer


OURS = f"{containers.MARK}\n[engine]\n"


def test_files_of_the_user_are_written_and_removed(home, capsys):
    folder = home / ".config/containers"
    files = {"containers.conf": OURS, "storage.conf": None}
    preview = run("configure", capsys, user_files=files, _ansible_check_mode=True)
    assert preview["paths"] == [f"{folder}/containers.conf"] and not folder.exists()
    assert run("configure", capsys, user_files=files)["changed"]
    assert (folder / "containers.conf").read_text() == OURS
    assert (folder / "containers.conf").stat().st_mode & 0o777 == 0o644
    assert not run("configure", capsys, user_files=files)["changed"]
    assert run("configure", capsys, user_files={"containers.conf": None})["changed"]
    assert list(folder.iterdir()) == []


def state(capsys, **given):
    return run("read", capsys, **given)["state"]


def test_the_state_tells_whose_file_it_is(home, capsys):
    folder = home / ".config/containers"
    folder.mkdir(parents=True)
    (folder / "containers.conf").write_text("[engine]\n")
    (folder / "storage.conf").write_text("[storage]\n")
    # A file that the role does not need is not in its way.
    seen = state(capsys, user_files={"containers.conf": OURS, "storage.conf": None, "new.conf": OURS})
    assert (seen["foreign"], seen["user_files"]) == ([f"{folder}/containers.conf"], ["containers.conf", "new.conf"])
    (folder / "containers.conf").write_text(OURS)
    (folder / "storage.conf").write_text(OURS)
    seen = state(capsys, user_files={"containers.conf": OURS, "storage.conf": None})
    assert (seen["foreign"], seen["user_files"]) == ([], ["storage.conf"])


def test_a_pipe_in_the_home_stops_nothing(home, capsys):
    folder = home / ".config/containers"
    folder.mkdir(parents=True)
    os.mkfifo(folder / "storage.conf")
    answer = run("read", capsys, user_files={"storage.conf": OURS})
    assert "n1: the settings of" in answer["msg"] and "no regular file" in answer["msg"]


def test_the_storage_of_a_node(home, capsys):
    seen = state(capsys, storage=str(home / "images"), free_gib=7)["storage"]
    assert (seen["path"], seen["exists"], seen["needed_gib"]) == (f"{home}/images/{ME}", False, 7)
    assert seen["free_gib"] >= 0 and seen["owner"] == ""
    (home / "images" / ME).mkdir(parents=True)
    seen = state(capsys, storage=str(home / "images"))["storage"]
    assert (seen["exists"], seen["free_gib"], seen["owner"]) == (True, None, ME)
    assert seen["unsafe"] == ""


def test_a_missing_user_is_a_part_of_the_state(monkeypatch, capsys):
    monkeypatch.setattr(container_setup, "_account", lambda user: None)
    assert state(capsys)["user"] is None
    probe = run("verify", capsys, user="nobody-here")["probe"]
    assert probe["fault"] == "no user nobody-here"


def test_ids_of_real_users_and_groups_are_spared(tmp_path):
    (tmp_path / "etc").mkdir()
    for name, text in {
        "subuid": SUBUID,
        "subgid": "train:100000:65536\n",
        "passwd": "root:x:0:0::/root:/bin/sh\nx:x:170000:1::/:/bin/sh\n",
        "group": "big:x:300000:\n",
    }.items():
        (tmp_path / "etc" / name).write_text(text)
    texts, fault = container_setup._range_texts(Tree(str(tmp_path)), "train", 2000)
    assert (texts, fault) == ({"/etc/subuid": f"{SUBUID}train:170001:65536\n"}, "")


def test_the_image_of_the_check_has_a_shell_that_runs(tmp_path):
    archive = tmp_path / "image.tar"
    packed = container_setup._pack(archive, {"timeout": 30, "env": {"PATH": "/usr/bin:/bin", "LC_ALL": "C"}})
    assert packed.status == 0, packed.output
    with tarfile.open(archive) as tar:
        names = tar.getnames()
        shell = tar.extractfile("bin/sh")
        assert isinstance(shell, io.BufferedReader) and shell.read(4) == b"\x7fELF"
    assert {"bin/sh", "usr/bin/id", "usr/bin/readlink"} < set(names)
    assert any("libc.so" in name for name in names) and any("ld-linux" in name for name in names)
