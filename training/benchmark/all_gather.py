#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Gather the ranks' numbers on every rank by Open MPI, and check what came. Run it under mpirun.

Each rank prints one line, `all-gather rank 1 of 4 on n2: 0 1 2 3 right`, or at its end `wrong, expected 0 1 2 3`.
Exit status: 0 right, 1 wrong or failed.
"""

from __future__ import annotations

import socket
import sys

from over_mpi import Group


def main() -> int:
    """Gather, check, and return the exit status."""
    group = Group()
    gathered, expected = group.all_gather(group.rank), list(range(group.ranks))
    outcome = "right" if gathered == expected else f"wrong, expected {' '.join(map(str, expected))}"
    numbers = " ".join(map(str, gathered))
    sys.stdout.write(f"all-gather rank {group.rank} of {group.ranks} on {socket.gethostname()}: {numbers} {outcome}\n")
    sys.stdout.flush()
    # The first rank that fails ends all of them: each must have said its line before.
    group.leave()
    return 0 if gathered == expected else 1


if __name__ == "__main__":
    sys.exit(main())
