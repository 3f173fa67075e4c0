"""What clients may read of an error that ended an operation."""

from __future__ import annotations

from headrace.foundation.errors import HeadraceError


def reason_of(error: Exception) -> str:
    """Return the message of an error of headrace, or of a time-out.

    The texts of other libraries may have statements, values and addresses, which everybody who may look at operations would see. Of those
    only the class is named, and of an operating system's error also its reason. The server's log has the rest.
    """
    if isinstance(error, HeadraceError | TimeoutError) and str(error):
        return str(error)
    said = (
        f"{type(error).__name__}: {error.strerror}"
        if isinstance(error, OSError) and error.strerror
        else type(error).__name__
    )
    return f"{said}; the server's log has the rest"
