"""The job of a case: the pipeline with memory in place of its sources and sinks, and the rows that are expected."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import headrace as hr

from headrace_pipeline.cases import Case, cases_of
from headrace_pipeline.compiling import PipelineFile
from headrace_pipeline.memory_ends import MemoryEnds, typed_rows


@dataclass(frozen=True)
class CaseJob:
    """A case that can be run. ``rows``: what each sink must get, as values of the types of its columns."""

    case: Case
    job: hr.Job
    ends: MemoryEnds
    rows: Mapping[str, list[dict[str, Any]]]

    @classmethod
    def of(cls, path: Path, variables: Mapping[str, str], number: int) -> CaseJob:
        """Make the job of a case. Raises PipelineError for rows that do not fit the columns, with their place."""
        # The file is read again for each case: its variables may have other values.
        own = cases_of(PipelineFile.of(path, variables).root)[number].variables
        file = PipelineFile.of(path, {**variables, **own})
        case = cases_of(file.root)[number]
        ends = MemoryEnds(case.given)
        job = file.job(ends)
        rows = {
            sink: typed_rows(case.rows.get(sink, []), ends.schemas[sink], of=f"sink {sink!r}") for sink in ends.sinks
        }
        return cls(case, job, ends, rows)


def jobs_of(path: Path, variables: Mapping[str, str]) -> Iterator[CaseJob]:
    """Yield the jobs of all cases of a file, one after the other. Raises JobError if the file or a case is wrong."""
    with _importable(path.absolute().parent):
        for number in range(len(cases_of(PipelineFile.of(path, variables).root))):
            yield CaseJob.of(path, variables, number)


@contextmanager
def _importable(directory: Path) -> Iterator[None]:
    """Let ``functions`` name modules beside the file, as a run of the file does."""
    sys.path.insert(0, str(directory))
    try:
        yield
    finally:
        sys.path.remove(str(directory))
