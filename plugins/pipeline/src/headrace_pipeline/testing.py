"""Runs the cases of pipeline files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from headrace.foundation.errors import JobError, JobFailedError

from headrace_pipeline.api import PipelineLanguage
from headrace_pipeline.case_jobs import CaseJob, jobs_of
from headrace_pipeline.cases import Case
from headrace_pipeline.comparing import letter_differences, row_differences


@dataclass(frozen=True)
class CaseResult:
    """What became of a case: the lines say what differs; there are none if it is as expected."""

    case: Case
    differences: tuple[str, ...]


def run_cases(path: Path, variables: Mapping[str, str]) -> list[CaseResult]:
    """Run all cases of a pipeline file on light, with memory in place of its sources and sinks.

    Raises JobError if the file or a case of it is wrong.
    """
    return [_run(made) for made in jobs_of(path, variables)]


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


def _run(made: CaseJob) -> CaseResult:
    case, ends = made.case, made.ends
    try:
        made.job.run("light", show_progress=False)
    except JobFailedError as error:
        cause = error.__cause__ or error
        return CaseResult(case, (f"the job failed: {cause}",))
    differences = []
    for sink, memory in ends.sinks.items():
        found = row_differences(sink, made.rows[sink], memory.table())
        if found and sink not in case.rows:
            found[0] += f" (the case does not name {sink!r})"
        differences += found
    return CaseResult(case, (*differences, *letter_differences(case.letters, ends.letters.rows)))
