"""examples/nginx_to_files.yaml."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from headrace_pipeline.testing import run_cases

from tests.examples.run import ROOT, run_example

LINES = """\
192.0.2.10 - - [10/Oct/2026:13:55:36 +0200] "GET /search?q=x HTTP/1.1" 200 2326 "-" "Mozilla/5.0"
192.0.2.7 - - [10/Oct/2026:13:55:40 +0200] "POST /orders HTTP/1.1" 503 20 "-" "curl/8.5.0"
192.0.2.7 - ida [10/Oct/2026:13:55:41 +0200] "GET /film HTTP/2.0" 200 20000000 "-" "curl/8.5.0"
192.0.2.1 - - [10/Oct/2026:13:55:46 +0200] "GET /health HTTP/1.1" 200 2 "-" "probe"
\\x16\\x03\\x01
"""


@pytest.mark.parametrize("backend", ["light", pytest.param("spark", marks=[pytest.mark.spark, pytest.mark.slow])])
def test_it(tmp_path: Path, backend: str) -> None:
    (tmp_path / "access.log").write_text(LINES)
    arguments: dict[str, object] = {"LOG": tmp_path / "access.log", "OUT": tmp_path / "out"}
    run_example("nginx_to_files.yaml", backend, tmp_path, arguments, {})
    found = {
        output.name: [
            json.loads(line) for file in output.rglob("part-*.json") for line in file.read_text().splitlines()
        ]
        for output in (tmp_path / "out").iterdir()
    }
    assert found["failures"] == [
        {"at": "2026-10-10T11:55:40.000000Z", "clientip": "192.0.2.7", "verb": "POST", "path": "/orders", "response": 503,
         "bytes": 20, "agent": "curl/8.5.0"},
    ]  # fmt: skip
    assert [row["path"] for row in found["large"]] == ["/film"]
    assert [row["path"] for row in found["others"]] == ["/search"]
    assert [letter["origin"] for letter in found["bad-lines"]] == ["grok"]


def test_its_cases() -> None:
    results = run_cases(ROOT / "examples" / "nginx_to_files.yaml", {})
    assert len(results) == 3
    assert [each.differences for each in results] == [()] * 3
