"""Packages that a virtual environment finds: real environments that layer others, compared with their Python."""

import json
import os
import subprocess
import sys

import pytest
from ansible.module_utils.trainyard_node.cluster.node_identity import installed_packages
from ansible.module_utils.trainyard_node.machine.tree import Tree


def layer(folder, name, *pth, package=""):
    """Make an environment with these .pth files and a package of the layer's name; return its site-packages."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder / name], check=True)
    (site,) = (folder / name / "lib").glob("python*/site-packages")
    (site / f"{package or name}-1.0.dist-info").mkdir()
    (site / f"{package or name}-1.0.dist-info" / "METADATA").write_text(f"Name: {package or name}\nVersion: 1.0\n")
    for number, text in enumerate(pth):
        (site / f"{number}.pth").write_text(text)
    return site


_ASK = """
import importlib.metadata, json
print(json.dumps({each.metadata["Name"]: each.version for each in importlib.metadata.distributions()}))
"""


@pytest.mark.parametrize(
    "lines",
    [
        "# the base\n\n{base}\n",
        "../../../../base/lib/{python}/site-packages\n",
        "import sys\n{base}\n",
        "import site; site.addsitedir('{base}')\n",
        'import site;site.addsitedir("{base}")',
        "{base}/nothing\n",
    ],
)
def test_a_venv_that_layers_another_has_the_packages_that_its_python_finds(tmp_path, lines):
    """Python follows a layer below the base only where site.addsitedir added the base."""
    floor = layer(tmp_path, "floor")
    base = layer(tmp_path, "base", f"{floor}\n")
    layer(tmp_path, "top", lines.format(base=base, python=base.parent.name))
    asked = subprocess.run([tmp_path / "top/bin/python", "-c", _ASK], capture_output=True, check=True)
    assert installed_packages(Tree(), str(tmp_path / "top")) == json.loads(asked.stdout)


def test_the_first_of_two_versions_counts_as_for_python(tmp_path):
    base = layer(tmp_path, "base", package="both")
    (base / "both-1.0.dist-info").rename(base / "both-2.0.dist-info")
    layer(tmp_path, "top", f"{base}\n", package="both")
    assert installed_packages(Tree(), str(tmp_path / "top")) == {"both": "1.0"}


def test_a_pth_file_is_bounded_and_never_run(tmp_path):
    site = layer(tmp_path, "top")
    mark = tmp_path / "mark"
    (site / "a.pth").write_text(f"import pathlib; pathlib.Path('{mark}').touch()\n")
    os.mkfifo(site / "b.pth")
    (site / "c.pth").symlink_to("/dev/zero")
    (site / "d.pth").write_text(f"import site; site.addsitedir('{site}')\n")
    (site / "e.pth").write_bytes(b"\0\xff\n" + b"x" * 300000)
    (site / "f.pth").write_text("".join(f"{tmp_path}/{number}\n" for number in range(20000)))
    assert installed_packages(Tree(), str(tmp_path / "top")) == {"top": "1.0"}
    assert not mark.exists()


def test_a_venv_of_a_python_elsewhere_may_see_the_packages_of_that(tmp_path):
    (tmp_path / "opt/venv").mkdir(parents=True)
    (tmp_path / "opt/venv/pyvenv.cfg").write_text(
        "home = /srv/python/bin\ninclude-system-site-packages = true\nversion_info = 3.12.3.final.0\n"
    )
    site = tmp_path / "srv/python/lib/python3.12/site-packages"
    (site / "mpi4py-4.0.0.dist-info").mkdir(parents=True)
    (tmp_path / "usr/lib/python3/dist-packages/torch-1.0.egg-info").mkdir(parents=True)
    assert installed_packages(Tree(str(tmp_path)), "/opt/venv") == {"mpi4py": "4.0.0"}


def test_an_environment_on_top_of_another_one_needs_a_pth_file(tmp_path):
    """What docs/environments.md says: --system-site-packages does not show the packages of a virtual environment."""
    lower = layer(tmp_path, "lower")
    upper = tmp_path / "upper"
    python = tmp_path / "lower" / "bin" / "python"
    subprocess.run([python, "-m", "venv", "--without-pip", "--system-site-packages", upper], check=True)

    def found():
        asked = subprocess.run([upper / "bin" / "python", "-c", _ASK], check=True, capture_output=True)
        return "lower" in json.loads(asked.stdout), "lower" in installed_packages(Tree(), str(upper))

    assert found() == (False, False)
    folder = 'import sysconfig; print(sysconfig.get_path("purelib"))'
    command = f"{python} -c '{folder}' > \"$({upper}/bin/python -c '{folder}')/lower.pth\""
    subprocess.run(["sh", "-c", command], check=True)
    assert found() == (True, True) and lower.is_dir()
