"""Turns failed system calls into errors of a queue."""

from __future__ import annotations

import errno

from headrace.foundation.errors import BrokenQueueError, RetriableError

#: Errors that waiting does not repair: there is no file at the path, or its disk cannot read it.
_BROKEN = (errno.EISDIR, errno.ENOTDIR, errno.ENAMETOOLONG, errno.ELOOP, errno.EIO, errno.EBADMSG)


def read_error(path: str, error: OSError) -> BrokenQueueError | RetriableError:
    """Return the error for the queue after a failed system call on ``path``."""
    if error.errno in (errno.EACCES, errno.EPERM):
        hint = "let the job's user read it, or exclude it"
        return BrokenQueueError(f"no permission to read {path}", plugin="file", hint=hint)
    if error.errno in _BROKEN:
        hint = "repair or remove it, or exclude it"
        return BrokenQueueError(f"cannot read {path}: {error.strerror}", plugin="file", hint=hint)
    return RetriableError(f"cannot read {path}: {error.strerror or error}", plugin="file")
