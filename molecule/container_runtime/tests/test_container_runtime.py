"""What container_runtime promises: the training user runs containers like a job's, or a message says why it cannot."""

import re

import pytest

# PWD as well: Podman 5 goes where it says.
AS_TRAIN = "sudo --user=train --set-home env --chdir=/ PWD=/ XDG_RUNTIME_DIR=/run/user/2000"
STORAGE = "/srv/containers/train"
INFO = " ".join(
    f"{{{{{field}}}}}"
    for field in (
        *(".Store.GraphDriverName", ".Store.GraphRoot", ".Host.Security.Rootless"),
        *('index .Store.GraphStatus "Native Overlay Diff"', ".Host.CgroupManager", ".Host.EventLogger"),
    )
)


def test_images_lie_on_the_chosen_disk(host):
    """Also the lower layers use the kernel's overlay, without a program of FUSE."""
    info = host.check_output(f"{AS_TRAIN} podman info --format '{INFO}'")
    assert info.split() == ["overlay", STORAGE, "true", "true", "cgroupfs", "file"]
    folder = host.file(STORAGE)
    assert (folder.user, folder.group, folder.mode) == ("train", "train", 0o700)


def test_a_user_without_a_login_has_its_folder(host):
    """Jobs are services of the system, which no login precedes."""
    assert host.file("/run/user/2000").user == "train"
    assert host.file("/var/lib/systemd/linger/train").exists


def test_ids_of_users_do_not_overlap(host):
    for path in ("/etc/subuid", "/etc/subgid"):
        lines = [line.split(":") for line in host.file(path).content_string.split()]
        spans = sorted((int(first), int(first) + int(count)) for _, first, count in lines)
        assert all(end <= first for (_, end), (first, _) in zip(spans, spans[1:], strict=False))
        assert [count for owner, _, count in lines if owner == "train"] == ["65536"]


def test_the_check_leaves_no_image(host):
    assert host.check_output(f"{AS_TRAIN} podman images --quiet") == ""


def test_the_verification_passes_and_changes_nothing(run_playbook):
    run_playbook("changed.yml", step="verify", container_runtime_storage="/srv/containers").expect(0).changes_nothing()


def test_wrong_input_is_reported_at_once(run_playbook):
    run_playbook(
        "changed.yml",
        container_runtime_storage="data",
        container_runtime_registries=[{"mirror": "m.example.org"}, {"location": "registry.example.org", "tls": False}],
    ).fails(
        "Containers cannot be set up: 2 findings. Nothing was changed. 1. input of container_runtime found "
        "container_runtime_storage is 'data' expected the full path of a folder such as /data/containers, or '' for "
        "the user's home do correct it 2. input of container_runtime found container_runtime_registries has the entry "
        "{'mirror': 'm.example.org'} container_runtime_registries has the entry {'location': 'registry.example.org', "
        "'tls': False} expected location, and perhaps mirror and insecure"
    )


def test_a_folder_on_an_overlay_is_refused(run_playbook):
    run_playbook("changed.yml", container_runtime_free_gib=0).fails(
        "Containers cannot run on all nodes: 1 finding. Nothing was changed. 1. storage on n1, n2 found "
        "/home/train/.local/share/containers, the user's home, is on overlay expected a local file system (ext4, xfs, "
        "btrfs) do set container_runtime_storage to a folder on a local disk"
    )


@pytest.mark.long
def test_what_the_user_wrote_is_not_replaced(run_playbook, first, last, node_names):
    """The other node lacks a range of ids, which the role adds only once all nodes are in order."""
    path = "/home/train/.config/containers/storage.conf"
    first.check_output(f"sudo sed -i /trainyard/d {path}")
    last.check_output("sudo sed -i /train/d /etc/subuid")
    run_playbook("changed.yml", container_runtime_storage="/srv/containers").fails(
        f"Nothing was changed. 1. settings of the user on {node_names[0]} found {path}, which this role did not write "
        "expected no such file"
    )
    assert "train" not in last.file("/etc/subuid").content_string
    first.check_output(f"sudo rm {path}")
    repaired = run_playbook("changed.yml", container_runtime_storage="/srv/containers").expect(0)
    assert [repaired.changes[node_names[0]], repaired.changes[node_names[-1]]] == [1, 1]
    assert re.search("^train:\\d+:65536$", last.file("/etc/subuid").content_string, re.M)


def test_containers_that_do_not_start_say_why(run_playbook, first, last, node_names):
    for node in (first, last):
        # Podman keeps a user namespace of earlier containers.
        node.check_output(f"{AS_TRAIN} podman system migrate")
    first.check_output("sudo mv /usr/bin/newuidmap /usr/bin/newuidmap.away")
    last.check_output("sudo setcap -r /usr/bin/newuidmap")
    try:
        run = run_playbook("changed.yml", step="verify", container_runtime_storage="/srv/containers")
    finally:
        first.check_output("sudo mv /usr/bin/newuidmap.away /usr/bin/newuidmap")
        last.check_output("sudo setcap cap_setuid+ep /usr/bin/newuidmap")
    run.fails(
        f"1. container on {node_names[0]} found a small image was not stored: newuidmap is missing: ",
        f"2. container on {node_names[-1]} found a small image was not stored: newuidmap may not give the user its ids",
        "do run site.yml with container_runtime_manage_system: true, or install the package uidmap by hand",
    )


@pytest.mark.long
def test_containers_get_the_gpus(run_playbook, last, last_name):
    """With fakes: the node has files in place of GPUs, and the toolkit's package a program that describes them."""
    specification = "/etc/cdi/nvidia.yaml"
    try:
        assert run_playbook("nvidia.yml").expect(0).changes[last_name] > 0
        text = last.file(specification)
        assert text.mode == 0o644 and "# Driver 580.126.09, toolkit 1.17.8, GPUs " in text.content_string
        assert last.check_output("dpkg-query --show nvidia-container-toolkit-base").split()[1] == "1.17.8-1"
        # As after an update of the driver that nobody followed by site.yml.
        last.check_output(f"sudo sed -i s/580.126.09/570.1/ {specification}")
        given = {"container_runtime_nvidia": True, "container_runtime_storage": "/srv/containers"}
        run_playbook("changed.yml", "--limit", last_name, step="verify", **given).fails(
            f"1. specification of the GPUs on {last_name} found {specification} of another driver, toolkit or set of "
            "GPUs expected one of the present GPUs do run the role container_runtime"
        )
    finally:
        # No other scenario may take the node for one with GPUs.
        traces = "/var/lib/trainyard-root/packages/container_runtime.json /etc/apt/preferences.d/*-container-runtime"
        last.check_output(
            f"sudo sh -c 'rm -f {specification} /dev/nvidia* /usr/local/bin/nvidia-smi {traces}; "
            "apt-mark unhold nvidia-container-toolkit-base; dpkg --purge nvidia-container-toolkit-base'"
        )
