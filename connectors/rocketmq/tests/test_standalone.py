"""The client is of use without headrace."""

from __future__ import annotations

import subprocess
import sys


def test_the_client_does_not_import_headrace() -> None:
    code = (
        "import sys; sys.modules['headrace'] = None; import headrace_rocketmq; "
        "print([name for name in sys.modules if name.partition('.')[0] in ('headrace', 'polars', 'msgspec')])"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True)
    assert result.stdout == "['headrace']\n"
