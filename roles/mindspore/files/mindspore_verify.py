# SPDX-License-Identifier: Apache-2.0
"""Prove a MindSpore installation: MindSpore's own run_check multiplies tensors on the device DEVICE_TARGET.

Prints what was found as one JSON object.
"""

import contextlib
import io
import json
import os
import sys
import tempfile

DEVICE = os.environ["DEVICE_TARGET"]

with tempfile.TemporaryDirectory() as folder:
    # Kernels that MindSpore compiles lie where it runs; the check starts in a folder that it cannot write to.
    os.chdir(folder)
    try:
        import mindspore
    except ImportError as error:
        if "libgomp" in str(error):
            sys.exit(f"{error}: install GCC's OpenMP library (package libgomp1 on Debian and Ubuntu, libgomp on RHEL)")
        raise
    mindspore.set_context(device_target=DEVICE)
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        mindspore.run_check()  # says how it went and raises nothing
    os.chdir("/")
lines = said.getvalue().strip().splitlines()
if not lines or "successfully" not in lines[-1]:
    sys.exit(f"run_check on {DEVICE}: {' '.join(lines) or 'it printed nothing'}")
print(json.dumps({"mindspore": mindspore.__version__, "device": DEVICE, "run_check": lines[-1]}))
sys.stdout.flush()
# The result stands; an accident of the interpreter's own exit must not spoil it.
os._exit(0)
