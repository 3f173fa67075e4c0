"""Pickles plug-ins with cloudpickle, as backends do to send them to worker processes."""

from __future__ import annotations

from typing import Any, TypeVar

import cloudpickle

from headrace_contract.contract import shortened, violated

T = TypeVar("T")


def pickled(thing: Any, *, what: str) -> bytes:
    """Return the pickle of a plug-in that was not used yet. Fails the check if it cannot be pickled."""
    __tracebackhide__ = True
    try:
        data: bytes = cloudpickle.dumps(thing)
    except Exception as error:
        _fail(what, error)
    return data


def through_pickle(thing: T, *, what: str) -> T:
    """Return a copy of a plug-in as a worker process gets it. Fails the check if it cannot be pickled or unpickled."""
    __tracebackhide__ = True
    data = pickled(thing, what=what)
    try:
        copy: T = cloudpickle.loads(data)
    except Exception as error:
        _fail(what, error)
    return copy


def _fail(what: str, error: Exception) -> Any:
    __tracebackhide__ = True
    violated(
        expected=f"{what} survives cloudpickle before it is used",
        found=f"{type(error).__name__}: {shortened(str(error))}",
        mend="create connections, locks, threads, files and generators when it is opened, not before",
    )
