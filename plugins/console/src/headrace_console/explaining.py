"""Shows a job's plan for ``headrace explain``."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from headrace.foundation.errors import JobError, OptionError
from headrace.interfaces.backend import RunOptions
from headrace.plan.graph import Plan

from headrace_console.job_files import load_job, parse_assignments
from headrace_console.reporting import say

_SUFFIXES = {".txt": "text", ".mmd": "mermaid", ".mermaid": "mermaid", ".svg": "svg"}


def explain(
    target: str, *, format: str | None, output: Path | None, checkpoint: Path | None, parameters: Sequence[str]
) -> None:
    """Print the plan that ``headrace run`` would run, or write it to ``output``.

    Raises JobError if the job is wrong, or if the output cannot be written.
    """
    chosen = format or (_format_of(output) if output else "text")
    job = load_job(target, parse_assignments(parameters, flag="--set"))
    text = renderer(chosen)(job.plan(RunOptions(checkpoint=str(checkpoint) if checkpoint else None)))
    if output is None:
        sys.stdout.write(text)
        return
    try:
        output.write_text(text, encoding="utf-8")
    except OSError as error:
        raise JobError(f"cannot write {output}: {error.strerror}", option="output") from error
    say(f"wrote {output}")


def renderer(format: str) -> Callable[[Plan], str]:
    """Return the function that turns a plan into ``text``, ``mermaid`` or ``svg``."""
    if format == "svg":
        from headrace_console.picture import plan_as_svg

        return plan_as_svg
    from headrace.plan.explain import plan_as_mermaid, plan_as_text

    return plan_as_mermaid if format == "mermaid" else plan_as_text


def _format_of(output: Path) -> str:
    suffix = output.suffix.lower()
    if suffix not in _SUFFIXES:
        raise OptionError(
            f"the suffix of {output.name!r} does not say which format is wanted",
            option="output",
            hint=f"pass --format, or end the name in {', '.join(sorted(_SUFFIXES))}",
        )
    return _SUFFIXES[suffix]
