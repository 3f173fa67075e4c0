"""Which jobs a command means: a name, a folder, a label, or all."""

from __future__ import annotations

from collections.abc import Iterable

from headrace.foundation.errors import JobError, did_you_mean

from headrace_server.registry.records import JobRecord

ALL = "--all"


def select_jobs(jobs: Iterable[JobRecord], text: str) -> list[JobRecord]:
    """Return the jobs that ``text`` means: ``NAME``, ``FOLDER/``, ``LABEL=VALUE`` or ``--all``. Raises JobError if there are none."""
    known = list(jobs)
    if text == ALL:
        found = [job for job in known if job.present]
    elif "=" in text:
        label, _, value = text.partition("=")
        found = [job for job in known if job.labels.get(label) == value]
    elif text.endswith("/"):
        found = [job for job in known if job.name.startswith(text)]
    else:
        found = [job for job in known if job.name == text]
    if not found:
        names = [job.name for job in known]
        hint = did_you_mean(text, names, known="jobs") if names else "there is no job in the jobs directory"
        raise JobError(f"no job matches {text!r}", hint=hint)
    return found
