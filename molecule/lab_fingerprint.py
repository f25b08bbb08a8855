"""Print what a node is, a line for each thing: files, packages, units, accounts, ssh, limits, sysctl settings.

`python3 -B -` runs it on a node. Two outputs are equal if nothing differs but what VOLATILE names.
"""

import hashlib
import os
import stat
import subprocess
from pathlib import Path

# Logs, caches and what running systems write by themselves. Each is an honest exception of docs/leftovers.md.
VOLATILE = (
    "/dev",
    "/proc",
    "/run",
    "/sys",
    "/tmp",  # noqa: S108
    # logs
    "/var/log",
    # what apt and dpkg remember of their work; packages and marks are compared below
    "/var/cache/apt",
    "/var/cache/debconf",
    "/var/lib/apt",
    "/var/lib/dpkg",
    "/var/lib/ucf",
    # copies that the tools for accounts keep of what was there before
    "/etc/group-",
    "/etc/gshadow-",
    "/etc/passwd-",
    "/etc/shadow-",
    "/etc/subgid-",
    "/etc/subuid-",
    # the loader's cache, whose content is compared below
    "/etc/ld.so.cache",
    "/var/cache/ldconfig",
    # Ansible's temporary files, of the user of ssh
    "/home/ops/.ansible",
    # systemd's timers and messages
    "/var/lib/systemd/timers",
    "/var/lib/systemd/catalog/database",
)
COMMANDS = (
    ["dpkg-query", "-W", "-f", "package ${Package} ${Version} ${db:Status-Abbrev}\n"],
    ["apt-mark", "showmanual"],
    ["apt-mark", "showhold"],
    ["systemctl", "list-unit-files", "--no-legend", "--no-pager", "--plain"],
    ["systemctl", "show", "--property=DefaultLimitNOFILE,DefaultLimitMEMLOCK,DefaultEnvironment"],
    ["sshd", "-T"],
    ["ldconfig", "-p"],
    ["sysctl", "-a", "--pattern", r"^(vm|net\.core|net\.ipv4\.ip_|kernel\.(yama|shm|sem|msg)|user\.max)"],
)


def line(path):
    """Return the type, mode, owner and content of a path."""
    state = path.lstat()
    kind, content = stat.filemode(state.st_mode), ""
    if path.is_symlink():
        content = path.readlink()
    elif path.is_file():
        content = hashlib.sha256(path.read_bytes()).hexdigest()
    return f"{path} {kind} {state.st_uid}:{state.st_gid} {content}"


def main():
    """Print all lines."""
    for folder, folders, names in os.walk("/"):
        paths = {name: Path(folder, name) for name in folders if name != "__pycache__"}
        # Folders that are mounted into a host of the lab are not the host's own.
        folders[:] = [name for name, path in paths.items() if str(path) not in VOLATILE and not path.is_mount()]
        for name in sorted(folders + names):
            path = Path(folder, name)
            if str(path) not in VOLATILE:
                print(line(path))
    for command in COMMANDS:
        environment = {**os.environ, "LC_ALL": "C", "PATH": "/usr/sbin:/sbin:/usr/bin:/bin"}
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
        for each in sorted(done.stdout.splitlines()):
            if not each.startswith("session-"):
                print(f"{' '.join(command[:2])}: {each}")


main()
