# SPDX-License-Identifier: Apache-2.0
"""This process's place in the cluster: joining it, with TLS where that is asked for, and what all ranks gather.

The launcher's variables say all that is needed: MS_ROLE and its fellows (launchers `mindspore` and `msrun`) or those of
Open MPI. Without them the process trains alone.
"""

from __future__ import annotations

import os
import socket
import sys
import time
from pathlib import Path

import mindspore
import numpy as np
import releases
from mindspore import Tensor, nn, ops
from mindspore.communication import get_group_size, get_rank, init

# Variables that name the devices of a process. With a rank table MindSpore uses the device in DEVICE_ID.
_DEVICES = {"CUDA_VISIBLE_DEVICES": "GPU", "ASCEND_RT_VISIBLE_DEVICES": "Ascend", "RANK_TABLE_FILE": "Ascend"}
_LAUNCHED_BY = ("MS_ROLE", "OMPI_COMM_WORLD_SIZE", "RANK_TABLE_FILE")


def device_target() -> str:
    """Return what MindSpore calls the device of this process."""
    return next((target for name, target in _DEVICES.items() if os.environ.get(name)), "CPU")


def came_back() -> bool:
    """Tell whether this process died in this job and comes back alone, while the other ranks still train.

    MindSpore brings such a one to where the others are itself: a collective that only this rank calls would never end.
    """
    path = os.environ.get("MS_RECOVERY_PATH")
    if os.environ.get("MS_ENABLE_RECOVERY") != "1" or not path:
        return False
    mark = Path(path, f"joined_{os.environ.get('MS_NODE_ID', socket.gethostname())}")
    if mark.exists():
        return True
    mark.parent.mkdir(parents=True, exist_ok=True)
    mark.touch()
    return False


def await_scheduler() -> None:
    """Wait until the scheduler listens, at most for as long as MindSpore waits for the whole cluster.

    With TLS its workers knock ten times only, which takes about 16 s, whatever MS_TOPO_TIMEOUT says.
    """
    address = os.environ["MS_SCHED_HOST"], int(os.environ["MS_SCHED_PORT"])
    deadline = time.monotonic() + int(os.environ.get("MS_TOPO_TIMEOUT") or 600)
    while time.monotonic() < deadline:
        try:
            socket.create_connection(address, 5).close()
        except OSError:
            time.sleep(0.5)
        else:
            return


def join() -> tuple[int, int]:
    """Join the cluster in graph mode and return rank and number of ranks.

    The scheduler runs this program, too: it stays in here for as long as the workers train, and never returns.
    """
    releases.use_device(device_target())
    if not any(os.environ.get(name) for name in _LAUNCHED_BY):
        return 0, 1
    if os.environ.get("MS_TLS_CONFIG"):
        mindspore.set_ps_context(
            config_file_path=os.environ["MS_TLS_CONFIG"],
            enable_ssl=True,
            client_password=os.environ["MS_TLS_CLIENT_PASSWORD"],
            server_password=os.environ["MS_TLS_SERVER_PASSWORD"],
        )
        if os.environ.get("MS_ROLE") == "MS_WORKER":
            await_scheduler()
    init()
    if os.environ.get("MS_ROLE") == "MS_SCHED":
        sys.exit(0)
    return get_rank(), get_group_size()


class _Gather(nn.Cell):
    def __init__(self) -> None:
        super().__init__()
        self.all_gather = ops.AllGather()

    def construct(self, values: Tensor) -> Tensor:
        return self.all_gather(values)


def gather(values: list[int], ranks: int) -> list[list[int]]:
    """Return what each rank gave, in the order of ranks. All ranks give equally many numbers below 2 ** 24."""
    if ranks == 1:
        return [values]
    # As float32: collectives of whole numbers are not there on every device.
    gathered = _Gather()(Tensor(np.array(values, dtype=np.float32))).asnumpy()
    return [[int(value) for value in row] for row in gathered.reshape(ranks, len(values))]
