"""Runs the cases of pipeline files."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from headrace.foundation.errors import JobError, JobFailedError

from headrace_pipeline.api import PipelineLanguage
from headrace_pipeline.cases import Case, cases_of
from headrace_pipeline.comparing import letter_differences, row_differences
from headrace_pipeline.compiling import PipelineFile
from headrace_pipeline.memory_ends import MemoryEnds, typed_rows


@dataclass(frozen=True)
class CaseResult:
    """What became of a case: the lines say what differs; there are none if it is as expected."""

    case: Case
    differences: tuple[str, ...]


def run_cases(path: Path, variables: Mapping[str, str]) -> list[CaseResult]:
    """Run all cases of a pipeline file on light, with memory in place of its sources and sinks.

    Raises JobError if the file or a case of it is wrong.
    """
    with _importable(path.absolute().parent):
        return [_run(path, variables, number) for number in range(len(cases_of(PipelineFile.of(path, variables).root)))]


def files_below(place: Path) -> list[Path]:
    """Return the pipeline files of a directory and those below it, without hidden ones. Raises JobError if it cannot be read."""
    try:
        found = sorted(
            path
            for suffix in PipelineLanguage.suffixes
            for path in place.rglob(f"*{suffix}")
            if path.is_file() and not any(part.startswith(".") for part in path.relative_to(place).parts)
        )
        return [path for path in found if PipelineLanguage.is_job(path.read_bytes())]
    except OSError as error:
        raise JobError(f"{error.filename} cannot be read: {error.strerror}") from error


def _run(path: Path, variables: Mapping[str, str], number: int) -> CaseResult:
    # The file is read again for each case: its variables may have other values.
    own = cases_of(PipelineFile.of(path, variables).root)[number].variables
    file = PipelineFile.of(path, {**variables, **own})
    case = cases_of(file.root)[number]
    ends = MemoryEnds(case.given)
    job = file.job(ends)
    rows = {sink: typed_rows(case.rows.get(sink, []), ends.schemas[sink], of=f"sink {sink!r}") for sink in ends.sinks}
    try:
        job.run("light", show_progress=False)
    except JobFailedError as error:
        cause = error.__cause__ or error
        return CaseResult(case, (f"the job failed: {cause}",))
    differences = []
    for sink, memory in ends.sinks.items():
        found = row_differences(sink, rows[sink], memory.table())
        if found and sink not in case.rows:
            found[0] += f" (the case does not name {sink!r})"
        differences += found
    return CaseResult(case, (*differences, *letter_differences(case.letters, ends.letters.rows)))


@contextmanager
def _importable(directory: Path) -> Iterator[None]:
    """Let ``functions`` name modules beside the file, as a run of the file does."""
    sys.path.insert(0, str(directory))
    try:
        yield
    finally:
        sys.path.remove(str(directory))
