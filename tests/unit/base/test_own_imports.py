"""All files of the project that a program needs, found by their imports."""

from ansible.module_utils.trainyard.base.own_imports import files_of

FILES = {
    "a/__init__.py": "",
    "a/program.py": "import os\nfrom .near import one as two\nfrom . import (\n    beside,\n    other as another,\n)\n",
    "a/near.py": "def late():\n    from ..b.far import x, y\n",
    "a/beside.py": "from .beside import itself\nfrom ...above import nothing\n",
    "a/other/__init__.py": "from .below import z\n",
    "a/other/below.py": "from ansible.module_utils import outside\n",
    "b/__init__.py": "",
    "b/far.py": "from json import loads\n",
    "b/unused.py": "",
}


def test_a_program_has_what_it_imports_anywhere_and_the_packages_of_that():
    assert files_of(["a/program.py"], FILES.get) == {path: FILES[path] for path in FILES if path != "b/unused.py"}


def test_a_file_that_is_missing_is_none():
    assert files_of(["c.py"], FILES.get) == {}
