"""Shows and moves the offsets of a stopped job: ``python -m headrace_server.runner.offsets``. A separate process: it loads the job.

Reads ``{"job": JobSpecification, "move": {QUEUE: OFFSET}}`` from standard input, and writes an answer as a runner does.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import Any

import msgspec
from headrace.foundation.errors import HeadraceError
from headrace.interfaces.registry import default_registry

from headrace_server.runner.specification import JobSpecification


class Request(msgspec.Struct, frozen=True):
    """What is asked for. Without ``move`` the offsets are only shown."""

    job: JobSpecification
    move: Mapping[str, int] = {}


def carry_out(request: Request) -> Mapping[str, int]:
    """Return the offsets of a stopped job, after they were moved. Raises the errors of the backend."""
    job = request.job
    if not request.move:
        backend = default_registry().find("backend", job.backend)()
        found: Mapping[str, int] = backend.stored_positions(job.checkpoint)
        return found
    from headrace_console.job_files import load_job

    prepared = load_job(job.file, job.variables).prepare(job.backend, **job.options, checkpoint=job.checkpoint)
    return prepared.backend.move_positions(prepared.plan, job.checkpoint, request.move)


def main() -> None:
    """Answer the request on standard input. What the code of the job prints goes to standard error."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    answer: dict[str, Any]
    try:
        answer = {"answer": dict(carry_out(msgspec.json.decode(sys.stdin.buffer.read(), type=Request)))}
    except HeadraceError as error:
        answer = {"error": error.message, "hint": error.hint}
    answers.write(msgspec.json.encode(answer) + b"\n")
    answers.flush()


if __name__ == "__main__":
    main()
