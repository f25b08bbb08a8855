# SPDX-License-Identifier: Apache-2.0
"""Fetch what two hosts of Debian 12 need for PyTorch and Open MPI: as a bundle, by pip alone, and by mirroring Debian.

No host is visited. Nothing is kept between rounds but what a proxy of the machine keeps.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from starting import BenchmarkError, run

LIMIT_S = 3600
INVENTORY = "compute: {hosts: {n1: {trainyard_system: debian-12-x86_64}, n2: {trainyard_system: debian-12-x86_64}}}\n"


def size_mib(folder: Path) -> float:
    """Return the size of all files below a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) / (1 << 20)


class Site:
    """An inventory with its lock, in a folder that is removed."""

    def __init__(self) -> None:
        """Write the inventory and lock its software once."""
        self._folder = tempfile.TemporaryDirectory()
        self.folder = Path(self._folder.name)
        (self.folder / "hosts.yml").write_text(INVENTORY)
        self.lock()

    def _playbook(self, name: str, **given: str | list[str]) -> float:
        given = {"trainyard_frameworks": ["pytorch", "openmpi"], "dataset_sets": [], **given}
        argv = ["ansible-playbook", f"playbooks/{name}.yml", "-i", str(self.folder / "hosts.yml"), "-e"]
        began = time.time()
        with tempfile.TemporaryDirectory() as cache:
            run([*argv, json.dumps(given)], {"UV_CACHE_DIR": cache}, limit_s=LIMIT_S)
        return time.time() - began

    def lock(self) -> dict[str, float]:
        """Lock everything; return the seconds and the MiB of the lock."""
        lock = self.folder / "trainyard.lock"
        lock.unlink(missing_ok=True)
        return {"s": self._playbook("lock"), "MiB": lock.stat().st_size / (1 << 20)}

    def bundle(self) -> dict[str, float]:
        """Make a bundle; return its seconds and MiB."""
        with tempfile.TemporaryDirectory() as name:
            seconds = self._playbook("bundle", bundle_path=name, bundle_key=str(self.folder / "key"))
            return {"s": seconds, "MiB": size_mib(Path(name))}

    def pip(self) -> dict[str, float]:
        """Download the wheels of the lock by pip, without the packages of the system."""
        system = json.loads((self.folder / "trainyard.lock").read_text())["systems"]["debian-12-x86_64"]
        wheels = system["environments"]["pytorch"]["wheels"]
        with tempfile.TemporaryDirectory() as name:
            wanted = Path(name) / "wanted.txt"
            wanted.write_text("".join(f"{wheel['name']}=={wheel['version']}\n" for wheel in wheels))
            platforms = [f"--platform=manylinux_2_{minor}_x86_64" for minor in (36, 34, 28, 27, 17, 12)]
            argv = [sys.executable, "-m", "pip", "download", "--no-cache-dir", "--no-deps", "--only-binary=:all:"]
            argv += [*platforms, "--platform=manylinux1_x86_64", "--platform=manylinux2014_x86_64"]
            began = time.time()
            run([*argv, "--python-version=3.11", f"--dest={name}/wheels", "-r", str(wanted)], limit_s=LIMIT_S)
            return {"s": time.time() - began, "MiB": size_mib(Path(name) / "wheels")}

    def mirror(self) -> dict[str, float]:
        """Ask apt-mirror how much the release takes; return the seconds until it knows, and MiB. Nothing is fetched."""
        if shutil.which("apt-mirror") is None:
            raise BenchmarkError("apt-mirror is not installed: apt-get install apt-mirror")
        targets = subprocess.run(["apt-get", "indextargets", "--format", "$(REPO_URI) $(RELEASE) $(COMPONENT)"],
                                 check=True, capture_output=True, text=True)  # fmt: skip
        lines = sorted({line for line in targets.stdout.splitlines() if "bookworm" in line})
        with tempfile.TemporaryDirectory() as name:
            sources = "".join(f"deb-amd64 {line}\n" for line in lines)
            settings = Path(name) / "mirror.list"
            settings.write_text(f"set base_path {name}\nset run_postmirror 0\nset nthreads 20\nset _tilde 0\n{sources}")
            began = time.time()
            return {"MiB": _announced_mib(["apt-mirror", str(settings)], name), "s": time.time() - began}


def _announced_mib(argv: list[str], folder: str) -> float:
    """Run apt-mirror until it says how much it will fetch."""
    for each in ("mirror", "skel", "var"):
        Path(folder, each).mkdir()
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True,
                          env={**os.environ, "LC_ALL": "C"}) as mirror:  # fmt: skip
        said = ""
        try:
            for line in mirror.stdout or ():
                said += line
                if found := re.search(r"([\d.]+) (GiB|MiB) will be downloaded into archive", line):
                    return float(found[1]) * (1024 if found[2] == "GiB" else 1)
        finally:
            os.killpg(mirror.pid, 15)
    raise BenchmarkError(f"apt-mirror announced no size: {said[-2000:]}")
