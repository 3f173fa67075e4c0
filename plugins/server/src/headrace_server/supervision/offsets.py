"""Offsets of stopped jobs, shown and moved in a separate process: it loads the job's code, which the server never does."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping

import msgspec
from headrace.foundation.errors import CheckpointError, JobError

from headrace_server.runner.offsets import Request
from headrace_server.supervision.specifications import Services

_TIMEOUT_SECONDS = 120.0


def offsets_of(services: Services, job: str, move: Mapping[str, int] | None = None) -> Mapping[str, int]:
    """Return the offsets of a stopped job, after they were moved if ``move`` says so. Raises the errors of the backend."""
    version = services.registry.job(job).current_version
    if version is None:
        raise JobError("no version of the job was accepted, so there is no checkpoint", job=job)
    environment = services.environment([services.settings(job, version)])
    request = msgspec.json.encode(Request(services.job_specification(job, version), dict(move or {})))
    try:
        done = subprocess.run(
            [sys.executable, "-m", "headrace_server.runner.offsets"],
            input=request,
            capture_output=True,
            env=environment,
            timeout=_TIMEOUT_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise JobError(f"the offsets were not read within {_TIMEOUT_SECONDS:g} s", job=job) from None
    if done.returncode:
        last = done.stderr.decode("utf-8", "replace").strip().splitlines()[-1:]
        raise JobError(f"the offsets cannot be read: {' '.join(last)}", job=job)
    answer = msgspec.json.decode(done.stdout)
    if "error" in answer:
        raise CheckpointError(answer["error"], job=job, hint=answer["hint"])
    return msgspec.convert(answer["answer"], dict[str, int])
