"""Let tests find the tools of their own environment, as `.venv/bin/pytest FILE` works where PATH does not have it."""

import os
import sys

os.environ["PATH"] = f"{sys.prefix}/bin{os.pathsep}{os.environ.get('PATH', os.defpath)}"
