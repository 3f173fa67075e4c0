"""The example with an access log and a small database."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import mmdb_writer
import netaddr
import pytest

from tests.examples.run import run_example

LINES = """\
192.0.2.7 - - [15/Jan/2026:10:23:45 +0100] "GET /cart?shop=7 HTTP/1.1" 200 512 "-" "Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0"
10.0.0.7 - - [15/Jan/2026:10:23:46 +0100] "GET /health HTTP/1.1" 200 2 "-" "curl/8.5.0"
192.0.2.8 - - [15/Jan/2026:10:23:47 +0100] "GET /
"""  # noqa: E501


def rows(directory: Path) -> list[dict[str, Any]]:
    return [
        json.loads(line) for file in sorted(directory.rglob("part-*.json")) for line in file.read_text().splitlines()
    ]


@pytest.mark.parametrize("backend", ["light", pytest.param("spark", marks=[pytest.mark.spark, pytest.mark.slow])])
def test_access_log_enriched(backend: str, tmp_path: Path) -> None:
    (tmp_path / "access.log").write_text(LINES)
    (tmp_path / "networks.txt").write_text("10.0.0.0/8\nfd00::/8\n")
    writer = mmdb_writer.MMDBWriter(ip_version=6, ipv4_compatible=True)
    place = {"country": {"iso_code": "DE"}, "city": {"names": {"en": "Berlin"}}}
    writer.insert_network(netaddr.IPSet(["192.0.2.0/24"]), place)
    writer.to_db_file(str(tmp_path / "places.mmdb"))
    arguments: dict[str, object] = {
        "path": "access.log", "database": str(tmp_path / "places.mmdb"), "ours": str(tmp_path / "networks.txt"),
    }  # fmt: skip
    run_example("access_log_enriched.py", backend, tmp_path, arguments, {})
    assert rows(tmp_path / "visits") == [
        {"timestamp": "2026-01-15T09:23:45.000000Z", "clientip": "192.0.2.7", "country": "DE", "city": "Berlin",
         "browser": "Firefox", "os": "Linux", "ours": False, "shop": "7", "response": 200},
        {"timestamp": "2026-01-15T09:23:46.000000Z", "clientip": "10.0.0.7", "country": None, "city": None,
         "browser": "curl", "os": None, "ours": True, "shop": None, "response": 200},
    ]  # fmt: skip
    (other,) = rows(tmp_path / "others")
    assert "none of 2 patterns fits" in other["reason"]
