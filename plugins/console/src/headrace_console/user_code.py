"""The error of a job file's own code. Apart from what is printed, so that who only loads jobs does not import that."""

from __future__ import annotations

from headrace.foundation.errors import JobError


class UserCodeError(JobError):
    """The job file itself raised an error. That error is the cause; the message says where it was raised."""
