# SPDX-License-Identifier: Apache-2.0
"""The logins for servers of packages and files: ~/.netrc, or the file that NETRC names, as curl, uv and pip read it."""

from __future__ import annotations

import base64
import netrc
import os
from pathlib import Path


def path() -> Path:
    """Return the file with the logins, which may not exist."""
    return Path(os.environ.get("NETRC") or "~/.netrc").expanduser()


def authorization(scheme: str, host: str) -> str:
    """Return the header Authorization for a host, "" without a login. Raises ValueError for a file that cannot be read.

    apt sends a login by http only to a machine that is written as http://HOST.
    """
    try:
        of = netrc.netrc(path()).hosts
    except FileNotFoundError:
        return ""
    except netrc.NetrcParseError as error:
        # Its text may show a password.
        raise ValueError(f"{path()}, line {error.lineno}, cannot be read") from error
    login = of.get(f"{scheme}://{host}") or of.get(host) or of.get("default")
    return f"Basic {base64.b64encode(f'{login[0]}:{login[2]}'.encode()).decode()}" if login else ""
