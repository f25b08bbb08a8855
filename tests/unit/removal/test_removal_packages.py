"""Which packages may go with trainyard."""

from ansible.module_utils.trainyard.removal.history import (
    Package,
    installed_by,
    read_automatic,
    read_packages,
    removable,
)
from removal_states import depends


def test_packages_that_others_need_stay_with_the_reason():
    installed = {
        "openmpi-bin": depends("libopenmpi3"),
        "libopenmpi3": depends("libc6"),
        "rsync": Package(),
        "libc6": Package(),
        "admins-app": depends("libopenmpi3"),
    }
    go, stay = removable(["openmpi-bin", "libopenmpi3", "rsync", "gone"], installed)
    assert go == ["openmpi-bin", "rsync"] and stay == {"libopenmpi3": "admins-app depends on it"}


def test_what_a_package_that_stays_needs_stays_as_well():
    installed = {"a": depends("b"), "b": depends("c"), "c": Package(), "mine": depends("a")}
    assert removable(["a", "b", "c"], installed) == (
        [],
        {"a": "mine depends on it", "b": "a depends on it", "c": "b depends on it"},
    )


def test_another_package_may_serve_instead():
    installed = {
        "mine": depends(("mpich", "mpi-runtime")),
        "openmpi": Package(provides=("mpi-runtime",)),
        "other": Package(provides=("mpi-runtime",)),
    }
    assert removable(["openmpi"], installed)[0] == ["openmpi"]
    del installed["other"]
    assert removable(["openmpi"], installed)[1] == {"openmpi": "mine depends on it"}


def test_what_the_node_needs_stays():
    names = ["python3", "sudo", "openssh-server", "linux-image-6.1.0-9-amd64", "base-files", "rsync"]
    installed = {name: Package(essential=name == "base-files") for name in names}
    go, stay = removable(names, installed)
    assert go == ["rsync"] and set(stay.values()) == {"the node needs it"}


def test_dpkgs_fields_are_read():
    line = "podman\tcrun (>= 1.0) | runc, libc6:any\tinit-system\tcontainers, oci (= 1)\tno\toptional"
    assert read_packages(line) == {
        "podman": Package((("crun", "runc"), ("libc6",), ("init-system",)), ("containers", "oci"), False)
    }


def test_marks_of_apt_are_read():
    text = (
        "Package: libpopt0\nArchitecture: amd64\nAuto-Installed: 1\n\n"
        "Package: rsync\nArchitecture: amd64\nAuto-Installed: 0\n\n"
    )
    assert read_automatic(text) == {"libpopt0"} and read_automatic("") == set()


def test_installations_of_ansible_and_of_others_are_told_apart():
    text = """
Start-Date: 2026-11-26  22:18:04
Commandline: /usr/bin/apt-get -y -o Dpkg::Options::=--force-confdef install rsync=3.5.0
Requested-By: ops (1000)
Install: rsync:amd64 (3.5.0+ds1-0+deb12u1), libpopt0:amd64 (1.19, automatic)
End-Date: 2026-11-26  22:18:05

Start-Date: 2026-11-26  22:20:00
Commandline: apt install htop
Install: htop:amd64 (3.2)
End-Date: 2026-11-26  22:20:01

Start-Date: 2026-11-26  22:21:00
Commandline: apt remove htop
Remove: htop:amd64 (3.2)
End-Date: 2026-11-26  22:21:01
"""
    assert installed_by(text, "2026-11-26  22:00:00") == ({"rsync", "libpopt0"}, {"htop"})
    assert installed_by(text, "2026-11-26  22:19:00") == (set(), {"htop"})
    assert installed_by("", "2026") == (set(), set())
