"""examples/auth_log_to_files.py."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.examples.run import run_example

LINES = """\
Jan 15 10:23:45 web-1 sshd[811]: Accepted publickey for ida from 192.0.2.10 port 51234 ssh2: RSA SHA256:uNiVztksCsDhcc0u9e8BrasO
Jan 15 10:23:46 web-1 sshd[812]: Failed password for invalid user admin from 2001:db8::7 port 40022 ssh2
2024-01-15T10:23:47.000001+01:00 web-2 sshd[9]: Invalid user oracle from 192.0.2.77 port 40022
Jan 15 10:23:48 web-1 sudo:     bob : TTY=pts/1 ; PWD=/tmp ; USER=root ; COMMAND=/bin/sh
Jan 15 10:23:49 web-1 sshd[813]: Server listening on 0.0.0.0 port 22.
"""


def rows(directory: Path) -> list[dict[str, Any]]:
    return [
        json.loads(line) for file in sorted(directory.rglob("part-*.json")) for line in file.read_text().splitlines()
    ]


@pytest.mark.parametrize("backend", ["light", pytest.param("spark", marks=[pytest.mark.spark, pytest.mark.slow])])
def test_auth_log_to_files(backend: str, tmp_path: Path) -> None:
    (tmp_path / "auth.log").write_text(LINES)
    run_example("auth_log_to_files.py", backend, tmp_path, {"path": "auth.log"}, {})
    found = rows(tmp_path / "logins")
    assert [(row["user.name"], row["source.ip"], row["source.port"], row["outcome"]) for row in found] == [
        ("ida", "192.0.2.10", 51234, "success"),
        ("admin", "2001:db8::7", 40022, "failure"),
        ("oracle", "192.0.2.77", 40022, "failure"),
    ]
    assert found[2]["timestamp"] == "2024-01-15T10:23:47.000001+01:00"
    (other,) = rows(tmp_path / "others")
    assert "Server listening" in str(other["row"])
    assert "none of 4 patterns fits: the longest partial match of pattern" in other["reason"]
