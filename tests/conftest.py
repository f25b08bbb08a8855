"""Let tests find the tools of their environment, and end what they started.

`.venv/bin/pytest FILE` works where PATH does not have the environment.
"""

import os
import subprocess
import sys

os.environ["PATH"] = f"{sys.prefix}/bin{os.pathsep}{os.environ.get('PATH', os.defpath)}"

_wait = subprocess.Popen.__exit__


def _end(process, error, *details):
    # A test that fails within `with Popen(["sleep", "600"])` would last ten minutes.
    if error is not None:
        process.kill()
    return _wait(process, error, *details)


subprocess.Popen.__exit__ = _end
