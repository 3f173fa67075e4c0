"""Where commands find the server of this machine. Apart from the client, so that a server does not import what asks servers."""

from __future__ import annotations

import os
from pathlib import Path

DEFAULT_DATA = Path("headrace-data")
DATA_VARIABLE = "HEADRACE_DATA"


def data_directory() -> Path:
    """Return the data directory of the server on this machine that commands mean."""
    return Path(os.environ.get(DATA_VARIABLE) or DEFAULT_DATA)
