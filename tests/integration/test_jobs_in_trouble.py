"""What a user sees of a broken sink and of input that is all bad, on both backends."""

from __future__ import annotations

import json
import traceback
from pathlib import Path
from typing import Any

import headrace as hr
import pytest
from headrace.foundation.errors import DataError, JobFailedError

BACKENDS = ["light", pytest.param("spark", marks=pytest.mark.spark)]
COUNT = 2_000


@pytest.fixture
def stream(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> hr.Stream:
    monkeypatch.chdir(tmp_path)
    lines = "".join(json.dumps({"number": number}) + "\n" for number in range(COUNT))
    (tmp_path / "numbers.ndjson").write_text(lines)
    schema = {"number": "int64"}
    return hr.stream("test", "trouble").from_file(str(tmp_path / "numbers.ndjson"), format="json", schema=schema)


def dead_letter_files() -> list[Path]:
    return sorted(Path("dead-letters").glob("**/part-*")) if Path("dead-letters").exists() else []


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_sink_with_a_bug_stops_the_job_with_its_traceback(stream: hr.Stream, backend: str) -> None:
    class Forgetful(hr.Sink):
        def batch_insert(self, batch: hr.SinkBatch) -> None:
            self.connection.insert(batch.rows())  # type: ignore[attr-defined]

    with pytest.raises(JobFailedError, match="sink 'to_forgetful'") as caught:
        stream.to(Forgetful()).run(backend)
    shown = "".join(traceback.format_exception(caught.value))
    assert "AttributeError: 'Forgetful' object has no attribute 'connection'" in shown
    assert "in batch_insert" in shown
    assert "self.connection.insert(batch.rows())" in shown
    assert dead_letter_files() == []


@pytest.mark.parametrize("backend", BACKENDS)
def test_rows_that_a_sink_all_refuses_are_dead_letters_in_few_files_and_no_success(
    stream: hr.Stream, backend: str
) -> None:
    class Refusing(hr.Sink):
        def batch_insert(self, batch: hr.SinkBatch) -> None:
            raise DataError("the number is not welcome")

    report: Any = stream.to(Refusing()).run(backend)
    assert report.dead_letters == COUNT
    assert report.all_dead_letters
    assert [(each.origin, each.error, each.reason, each.count) for each in report.dead_letter_reasons] == [
        ("to_refusing", "DataError", "the number is not welcome", COUNT)
    ]
    assert report.dead_letter_places == ("dead_letters_file (path 'dead-letters/test.trouble')",)
    assert "dead-letters/test.trouble" in str(report)
    assert "2,000 × to_refusing: DataError: the number is not welcome" in str(report)
    files = dead_letter_files()
    assert 1 <= len(files) <= 4
    assert sum(file.read_bytes().count(b"\n") for file in files) == COUNT


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_most_frequent_reasons_come_first(stream: hr.Stream, backend: str) -> None:
    job = stream.map(lambda row: {"share": row["number"] % 4 and 1 // (row["number"] % 2)}).to_file(
        "out", format="json"
    )
    report: Any = job.run(backend)
    assert report.dead_letters == COUNT // 4
    assert not report.all_dead_letters
    [reason] = report.dead_letter_reasons
    assert (reason.origin, reason.error, reason.count) == ("map", "ZeroDivisionError", COUNT // 4)
