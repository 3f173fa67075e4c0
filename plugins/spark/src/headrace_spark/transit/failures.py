"""How an error in a worker process reaches the driver: as text inside Spark's error, from which the driver makes the error again.

Spark passes a worker's exception on as the text of its traceback, inside several Java exceptions. So what is raised in a
worker is a ``WorkerFailure`` whose text carries the original in a form that can be read back: JSON, not a pickle.
"""

from __future__ import annotations

import base64
import json
import re
import traceback
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

from headrace.foundation import errors
from headrace.foundation.errors import HeadraceError

if TYPE_CHECKING:
    from headrace_spark.transit.payload import JobPayload

_MARK = "headrace-failure"
_PATTERN = re.compile(_MARK + r"<([A-Za-z0-9+/=]+)>")
_TRACE_LENGTH_MAX = 8_000
#: Python's own errors that can be made again from their text.
_REBUILT: Mapping[str, type[Exception]] = {
    kind.__name__: kind
    for kind in (ValueError, TypeError, ZeroDivisionError, AttributeError, AssertionError, RuntimeError, OSError)
}


class WorkerFailure(Exception):
    """Carries an error out of a worker process. Its text is for ``original_error`` on the driver."""


@contextmanager
def carried_to_driver() -> Iterator[None]:
    """Wrap errors raised inside so that the driver can restore them. Used around everything that Spark calls."""
    try:
        yield
    except WorkerFailure:
        raise
    except Exception as error:  # whatever it is, the driver is to see it
        # Its text has the traceback. As its cause Spark would leave it out, or log it a second time.
        raise WorkerFailure(describe(error)) from None


def reported(payload: JobPayload) -> AbstractContextManager[None]:
    """Return what wraps errors for the driver: nothing in a query of the user's, where Spark itself shows them."""
    return nullcontext() if payload.in_user_query else carried_to_driver()


def describe(error: BaseException) -> str:
    """Return a text that names the error, with its traceback for Spark's log, and holds all that ``original_error`` needs."""
    attributes = {}
    if isinstance(error, HeadraceError):
        attributes = {
            name: value if isinstance(value, str | int) else None
            for name, value in error.__dict__.items()
            if name != "__notes__"
        }
    trace = "".join(traceback.format_exception(error))[-_TRACE_LENGTH_MAX:]
    content = {
        "kinds": [[kind.__module__, kind.__name__] for kind in type(error).__mro__],
        "text": str(error),
        "attributes": attributes,
        "trace": trace,
    }
    encoded = base64.b64encode(json.dumps(content).encode()).decode()
    return f"{type(error).__name__}: {error}\n{trace.rstrip()}\n{_MARK}<{encoded}>"


def original_error(text: str) -> Exception | None:
    """Return the error that a worker raised, from the text of Spark's; None when it contains no error of headrace.

    headrace's errors and Python's built-in errors keep their class; others become a RuntimeError that names the class. The
    worker's traceback is a note on it.
    """
    found = _PATTERN.findall(text)
    if not found:
        return None
    content: dict[str, Any] = json.loads(base64.b64decode(found[-1]))
    error = _rebuilt(content)
    error.add_note("in a worker process:\n" + content["trace"].rstrip())
    return error


def _rebuilt(content: dict[str, Any]) -> Exception:
    text: str = content["text"]
    kinds: list[tuple[str, str]] = content["kinds"]
    for module, name in kinds:
        # A plug-in's own kind of error comes back as the kind of headrace's that it extends.
        kind = getattr(errors, name, None) if module == errors.__name__ else None
        if isinstance(kind, type) and issubclass(kind, HeadraceError):
            error = kind.__new__(kind, content["attributes"].get("message"))
            error.__dict__.update(content["attributes"])
            return error
    module, name = kinds[0]
    if module == "builtins" and name in _REBUILT:
        return _REBUILT[name](text)
    return RuntimeError(f"{name}: {text}")
