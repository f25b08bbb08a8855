# SPDX-License-Identifier: Apache-2.0
"""The variables of a job: type, default and range of each, in one table.

What each means is said for users in docs/job-file.md, and for Ansible in the argument_specs of the role `job` and of
the playbooks; a test holds these and the role's defaults against this table. `job` names the file itself, `job_id`
chooses a run in the other playbooks, `job_node_env` is a variable of a host.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from . import tls

# How mpirun is told which host takes how many ranks: by a file, or by -H.
MPI_PLACEMENTS = ("hostfile", "hosts")
# Who tells a rank its place under OneFlow: its launch module, or the script itself out of a list of addresses.
ONEFLOW_STYLES = ("launch", "address_list")
_DAY, _YEAR = 86_400, 31_536_000  # seconds


@dataclass(frozen=True)
class Variable:
    """A variable: its type as argument_specs name it, its default (None: it has none), and what it may be.

    Numbers are from `least` to `most`, where `most` is not 0; those of type `raw` may also be
    `auto`, or what their default is.
    """

    type: str
    default: Any = None
    least: int = 0
    most: int = 0
    choices: tuple[str, ...] = ()

    @property
    def range(self) -> str:
        """The least and the most that a number may be, in words."""
        return f"from {self.least} to {self.most}"


VARIABLES: Mapping[str, Variable] = {
    "job": Variable("path"),
    "job_account": Variable("str", ""),
    "job_checkpoints": Variable("str", ""),
    "job_command": Variable("list"),
    "job_data": Variable("list", []),
    "job_devices": Variable("raw", "auto"),
    "job_env": Variable("dict", {}),
    "job_events": Variable("list", []),
    "job_events_interval": Variable("int", 600, 10, _DAY),
    "job_events_secret": Variable("str", ""),
    "job_folder": Variable("path", ""),
    "job_gate": Variable("bool", True),
    "job_gres": Variable("str", "auto"),
    "job_hang_first_step": Variable("int", 1800, 5, _DAY),
    "job_hang_pause": Variable("int", 1800, 5, _DAY),
    "job_hang_pause_pattern": Variable("str", ""),
    "job_hang_timeout": Variable("raw", "off", 5, _DAY),
    "job_heartbeat_timeout": Variable("int", 30, 1, _DAY),
    "job_hosts": Variable("str", "compute"),
    "job_id": Variable("str"),
    "job_image": Variable("str", ""),
    "job_join_timeout": Variable("int", 600, 1, _DAY),
    "job_kube_context": Variable("str", ""),
    "job_kubeconfig": Variable("str", ""),
    "job_kubernetes": Variable("dict", {}),
    "job_launcher": Variable("str", "torchrun"),
    "job_log_limit_mib": Variable("int", 4, 1, 1024),
    "job_login_host": Variable("str", ""),
    "job_max_restarts": Variable("int", 0, 0, 100),
    "job_message_timeout": Variable("int", 300, 1, _DAY),
    "job_metrics_folder": Variable("path", ""),
    "job_min_disk_mib": Variable("int", 1024, 0, 1_000_000_000),
    "job_min_memory_mib": Variable("int", 256, 0, 1_000_000_000),
    "job_mpi_parameters": Variable("dict", {}),
    "job_mpi_placement": Variable("str", "hostfile", choices=MPI_PLACEMENTS),
    "job_name": Variable("str"),
    "job_namespace": Variable("str", ""),
    "job_nccl_info": Variable("bool", False),
    "job_network": Variable("str", ""),
    "job_node_env": Variable("dict", {}),
    "job_nodes": Variable("int", 0, 0, 1_000_000),
    "job_oneflow_style": Variable("str", "launch", choices=ONEFLOW_STYLES),
    "job_packages": Variable("list", ["torch"]),
    "job_partition": Variable("str", ""),
    "job_port": Variable("raw", "auto", 1024, 65535),
    "job_processes_per_node": Variable("raw", "auto", 1, 1024),
    "job_progress_pattern": Variable("str", ""),
    "job_qos": Variable("str", ""),
    "job_rank_table": Variable("str", ""),
    "job_recovery": Variable("bool", False),
    "job_recovery_path": Variable("path", ""),
    "job_rejoin_timeout": Variable("int", 300, 1, _DAY),
    "job_sbatch_options": Variable("list", []),
    "job_scheduler": Variable("str", "ssh"),
    "job_secret_env": Variable("dict", {}),
    "job_source": Variable("str", ""),
    "job_slow_ranks": Variable("bool", True),
    "job_timeout": Variable("int", _DAY, 1, _YEAR),
    "job_spares": Variable("int", 0, 0, 1000),
    "job_tls": Variable("bool", False),
    "job_tls_ca_dir": Variable("path", "~/.trainyard/{{ trainyard_cluster }}/tls_ca"),
    "job_tls_certificates": Variable("dict", {}),
    "job_tls_ciphers": Variable("list", list(tls.DEFAULT_CIPHERS)),
    "job_tls_revoked": Variable("list", []),
    "job_tls_warning_days": Variable("int", 90, tls.LEAST_WARNING_DAYS, tls.MOST_WARNING_DAYS),
    "job_venv": Variable("str", "pytorch"),
    "job_wait": Variable("bool", True),
}
