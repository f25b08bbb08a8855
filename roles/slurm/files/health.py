#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Slurm's HealthCheckProgram: the device checks of verify.yml, whose modules this role installs."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "lib/trainyard-slurm-health"))

from checks.trainyard_node.slurm.health_check import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
