"""Jobs that are edited between two runs: the second run is refused, or writes what the edited job would have written then."""

from __future__ import annotations

import tempfile
import threading
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headrace.foundation.errors import CheckpointError, HeadraceError
from headrace.testing import MemorySink

from tests.differential.choices import Choices
from tests.differential.families import Family
from tests.differential.streams import running
from tests.differential.streams.editing import edited
from tests.differential.streams.generator import make_plan
from tests.differential.streams.plan import Plan
from tests.differential.streams.sql_generator import make_sql_plan

#: By output: the changes that a run wrote, sorted.
Written = dict[str, list[str]]


@dataclass(frozen=True)
class EditedCase:
    """A plan, the plan after an edit (None: no verb could be edited), and after how many rows it is edited.

    ``savepoint``: the second run begins from a savepoint of the first one with so many shards; None: from its checkpoint.
    """

    before: Plan
    after: Plan | None
    edit: str
    dialect: str
    rows: int
    batch: int
    shards: int
    savepoint: int | None

    def __str__(self) -> str:
        texts = [running.text_of(self.before, self.dialect)]
        if self.after is not None:
            texts += [f"edited ({self.edit}) behind {self.rows} rows to", running.text_of(self.after, self.dialect)]
        rows = [f"  {each.table} {each.queue}: {each.row}" for each in self.before.arrivals]
        start = "its checkpoint" if self.savepoint is None else f"a savepoint, with {self.savepoint} shards"
        return "\n".join([*texts, *rows, f"in batches of {self.batch}, {self.shards} shards; goes on from {start}"])


def generate(choices: Choices) -> EditedCase:
    """Return a case of the choices."""
    dialect = choices.pick(["dsl", "sql"])
    before = make_plan(choices) if dialect == "dsl" else make_sql_plan(choices)
    edit, after = edited(choices, before) or ("", None)
    rows = choices.integer(0, len(before.arrivals))
    savepoint = choices.pick([1, 3]) if choices.chance(30) else None
    batch, shards = choices.pick([1000, 7, 1]), choices.pick([1, 3])
    return EditedCase(before, after, edit, dialect, rows, batch, shards, savepoint)


def check(case: EditedCase) -> str | None:
    """Return what is wrong with a case, or None."""
    if case.after is None or running.text_of(case.before, case.dialect) == running.text_of(case.after, case.dialect):
        return None
    try:
        expected = _second_run(case, case.after)
    except CheckpointError:
        raise
    except HeadraceError:
        return None  # after the edit it is no job: a window without end, say
    try:
        found = _second_run(case, case.before)
    except CheckpointError:
        return None
    told = []
    for name in sorted(expected):
        want, have = Counter(expected[name]), Counter(found[name])
        for sign, rows in (("missing", want - have), ("too much", have - want)):
            told += [f"{name}: {sign} ×{count}: {row}" for row, count in sorted(rows.items())[:4]]
    return "\n".join(["is not what the edited job would have given all the time:", *told]) if told else None


def _second_run(case: EditedCase, first: Plan) -> Written:
    """Run a plan until some rows have come, then the edited one, and return what that wrote."""
    assert case.after is not None
    with tempfile.TemporaryDirectory() as directory:
        checkpoint, savepoint = Path(directory, "checkpoint"), Path(directory, "savepoint")
        handle, script, _ = _started(case, first, case.rows, None, checkpoint=str(checkpoint), shards=case.shards)
        waited = threading.Event()
        while not script.exhausted and handle.status().error is None:
            waited.wait(0.001)
        handle.stop(**({} if case.savepoint is None else {"savepoint": str(savepoint)}))
        handle.wait()
        options: dict[str, Any] = {"checkpoint": str(checkpoint), "shards": case.shards}
        if case.savepoint is not None:
            options = {"checkpoint": f"{directory}/other", "from_savepoint": str(savepoint), "shards": case.savepoint}
        handle, _, sinks = _started(case, case.after, None, "end", **options)
        handle.wait()
    return {
        name: sorted(f"{int(kind)} {running.normal(row)}" for row, kind in zip(sink.rows, sink.kinds, strict=True))
        for name, sink in sinks.items()
    }


def _started(case: EditedCase, plan: Plan, rows: int | None, until: str | None, **options: Any) -> tuple[Any, Any, Any]:
    making = running.job_of if case.dialect == "dsl" else running.sql_job_of
    script = running.script_of(plan, case.batch, until=rows)
    job, sinks = making(plan, script, lambda name: MemorySink())
    return running.started(job, script, until=until, max_batch_records=case.batch, **options), script, sinks


FAMILY = Family("edited", generate, check, str)
