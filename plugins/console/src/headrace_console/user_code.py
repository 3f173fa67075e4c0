"""The error of a job file's own code. In a separate module, so that programs that only load jobs import no printing code."""

from __future__ import annotations

from headrace.foundation.errors import JobError


class UserCodeError(JobError):
    """The job file itself raised an error. That error is the cause; the message says where it was raised."""
