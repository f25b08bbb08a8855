"""Let tests find the tools of their environment, and end what they started.

`.venv/bin/pytest FILE` works where PATH does not have the environment.
"""

import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

os.environ["PATH"] = f"{sys.prefix}/bin{os.pathsep}{os.environ.get('PATH', os.defpath)}"

# libyaml takes a tenth of the time.
yaml.SafeLoader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

_wait = subprocess.Popen.__exit__


def _end(process, error, *details):
    # A test that fails within `with Popen(["sleep", "600"])` would last ten minutes.
    if error is not None:
        process.kill()
    return _wait(process, error, *details)


subprocess.Popen.__exit__ = _end


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    # Otherwise each worker compiles all tests of a fresh tree by itself: that takes most of what a collection costs.
    with Path(__file__).open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        return (yield)
