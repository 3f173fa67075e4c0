"""Queues that hold nothing yet: a run to the end ends, and later runs over the same checkpoint go on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import headrace as hr
import pytest

BACKENDS = ["light", pytest.param("spark", marks=pytest.mark.spark)]


@pytest.mark.parametrize("keyed", [False, True], ids=["stateless", "keyed"])
@pytest.mark.parametrize("backend", BACKENDS)
def test_what_comes_behind_nothing_is_read(backend: str, keyed: bool, tmp_path: Path) -> None:
    queues = [tmp_path / "in" / name for name in ("a.ndjson", "b.ndjson")]
    (tmp_path / "in").mkdir()
    for queue in queues:
        queue.write_text("")

    def run(until: Any = "end") -> Any:
        stream = hr.stream("test", "empty").from_file(
            str(tmp_path / "in" / "*.ndjson"), format="json", schema={"v": "int64"}
        )
        if keyed:
            stream = stream.key_by("v").distinct()
        return stream.to_file(str(tmp_path / "out"), format="json").run(
            backend, until=until, checkpoint=str(tmp_path / "checkpoint"), show_progress=False
        )

    for _ in range(2):
        assert run().records_read == 0
    for number, queue in enumerate(queues):
        queue.write_text(f'{{"v": {number}}}\n')
        assert run().records_read == 1
    parts = (tmp_path / "out").glob("*.json*")
    assert sorted(json.loads(line)["v"] for part in parts for line in part.read_text().splitlines()) == [0, 1]
