"""A job whose tasks wait, at some rows and in each stage, until two attempts of the task are there: so both surely run at the same time."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import headrace as hr
from pyspark import TaskContext

from tests.conformance.case import Case
from tests.conformance.stateful_inputs import SCHEMA, clicks
from tests.eventually import eventually

STAGES = ("source", "keyed", "sink")
_ASKED = "meet"
_PATIENCE_SECONDS = 20.0


def ask_to_meet(directory: Path) -> None:
    """Let the tasks of a case wait for each other."""
    (directory / _ASKED).touch()


def attempts_met(directory: Path) -> dict[str, int]:
    """Return in how many tasks of each stage two attempts were at the same row at the same time."""
    return {stage: len(list(directory.glob(f"met-{stage}-*"))) for stage in STAGES}


def meet(directory: Path, stage: str, row_id: int) -> None:
    """Wait until another attempt of this task has come to this row too. After a while go on alone: Spark owes nobody a copy."""
    context = TaskContext.get()
    if context is None or not (directory / _ASKED).exists():  # on light
        return
    task = f"{stage}-{row_id}-{context.partitionId()}"
    (directory / f"here-{task}.{context.taskAttemptId()}").touch()
    with contextlib.suppress(AssertionError):
        eventually(lambda: len(list(directory.glob(f"here-{task}.*"))) > 1, "two attempts", seconds=_PATIENCE_SECONDS)
        (directory / f"met-{task}").touch()


def meeting_case(rows: int, every: int, into: Mapping[str, Any] | None = None) -> Case:
    """Return a job with two keyed stages over so many rows, into files and, with the options ``into``, a table of MySQL."""

    def build(directory: Path) -> hr.Job:
        def read(row: dict[str, Any]) -> dict[str, Any]:
            if row["id"] % every == every - 1:
                meet(directory, "source", row["id"])
            return row

        def counted(stage: str, column: str) -> Any:
            def count(row: dict[str, Any], state: dict[str, Any], timers: Any) -> Iterator[dict[str, Any]]:
                if row["id"] % every == every - 1:
                    meet(directory, stage, row["id"])
                state["n"] = state.get("n", 0) + 1
                yield {**{name: row[name] for name in ("key", "id", "first") if name in row}, column: state["n"]}

            return count

        pipe = hr.stream("cluster", "meeting")
        events = pipe.from_file(f"{directory}/in/clicks.ndjson", format="json", schema=SCHEMA).map(read, schema=SCHEMA)
        columns = {"key": "string", "id": "int64", "first": "int64"}
        first = events.key_by("key").process(counted("keyed", "first"), schema=columns)
        # By id: in which order the rows of several shards come to another one is not defined.
        second = first.key_by("id").process(counted("sink", "second"), schema={**columns, "second": "int64"})
        written: hr.Job = second.to_file(f"{directory}/out/rows", format="json")
        return written if into is None else written.also(second.to_mysql(**into))

    return Case("meeting", {"clicks.ndjson": clicks(rows, 1)}, build)


def rows_of(directory: Path) -> list[tuple[Any, ...]]:
    """Return the rows that light has written, in an order."""
    lines = [line for part in (directory / "out" / "rows").glob("part-*") for line in part.read_text().splitlines()]
    return sorted((tuple(json.loads(line).values()) for line in lines), key=str)
