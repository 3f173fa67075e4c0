"""What all contracts share: how a check fails, what an author may leave out, and how long external systems may take."""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any, ClassVar, NoReturn, TypeVar

import pytest

T = TypeVar("T")


class ContractViolation(AssertionError):
    """A plug-in breaks a promise of its base class. The message has the expected and the actual result, and how to correct it."""

    def __init__(self, expected: str, found: str, mend: str) -> None:
        self.expected = expected
        self.found = found
        self.mend = mend
        super().__init__(f"\n  expected: {expected}\n  but:      {found}\n  mend:     {mend}")


def violated(*, expected: str, found: str, mend: str) -> NoReturn:
    """Fail the running check: raise ContractViolation."""
    __tracebackhide__ = True
    raise ContractViolation(expected, found, mend)


def expect(condition: object, *, expected: str, found: str, mend: str) -> None:
    """Fail the running check unless ``condition`` holds."""
    __tracebackhide__ = True
    if not condition:
        violated(expected=expected, found=found, mend=mend)


F = TypeVar("F", bound=Callable[..., Any])


def optional_hook(function: F) -> F:
    """Mark a method of a contract that an author may leave out. Then the checks that need it are skipped, and the skip names it."""
    function.__headrace_optional__ = True  # type: ignore[attr-defined]
    return function


def for_each(argument: str, attribute: str) -> Callable[[F], F]:
    """Make one test per entry of a class attribute, which an author may override. The test gets the entry as ``argument``."""

    def mark(function: F) -> F:
        function.__headrace_each__ = (argument, attribute)  # type: ignore[attr-defined]
        return function

    return mark


class Contract:
    """Base of all contracts. A subclass named ``Test…`` in an author's test module gets every check as a test."""

    #: Declared weaknesses: name of a check -> why the plug-in cannot pass it. Such a check must fail: if it passes, this is
    #: an error, so that the list stays correct. The summary of the test run shows the weaknesses.
    weaknesses: ClassVar[Mapping[str, str]] = {}
    #: How long a check waits until an external system shows a change (a new queue, a restarted server).
    patience: ClassVar[timedelta] = timedelta(seconds=30)
    #: A check that takes longer counts as hanging: it fails, and the message says at which line it was.
    check_time_max: ClassVar[timedelta] = timedelta(minutes=5)
    #: Name of the plug-in in error messages; default: the name of the contract's class.
    plugin: ClassVar[str] = ""

    #: An empty directory, new for each check.
    tmp_path: Path
    #: A name of letters, digits and underscores, new for each check: for tables, topics, indexes.
    unique_name: str

    @pytest.fixture(autouse=True)
    def _contract_place(self, tmp_path: Path) -> None:
        self.begin(tmp_path)

    def begin(self, tmp_path: Path) -> None:
        """Set ``tmp_path`` and ``unique_name``. pytest calls it before each check; an override must call ``super().begin``."""
        self.tmp_path = tmp_path
        self.unique_name = f"contract_{secrets.token_hex(6)}"

    def in_thread(self, action: Callable[[], T], *, what: str, mend: str) -> T:
        """Call ``action`` in a new thread and return its result.

        Fails the check if it raises an error, or does not return within ``patience``. ``what`` is the expectation in the
        message, ``mend`` what to change.
        """
        __tracebackhide__ = True
        results: list[T] = []
        errors: list[BaseException] = []

        def call() -> None:
            try:
                results.append(action())
            except BaseException as error:  # the thread of the check reports it
                errors.append(error)

        thread = threading.Thread(target=call, name="contract", daemon=True)
        thread.start()
        thread.join(self.patience.total_seconds())
        if errors:
            found = f"{type(errors[0]).__name__}: {shortened(str(errors[0]))}"
            raise ContractViolation(what, found, mend) from errors[0]
        if not results:
            violated(expected=what, found=f"no return within {self.patience.total_seconds():g} s", mend=mend)
        return results[0]

    @classmethod
    def provides(cls, hook: str) -> bool:
        """Return whether the author has overridden an optional hook."""
        return not getattr(getattr(cls, hook), "__headrace_optional__", False)

    def need(self, *hooks: str) -> None:
        """Skip the running check, with the reason, unless the author provides all these hooks."""
        __tracebackhide__ = True
        missing = [hook for hook in hooks if not self.provides(hook)]
        if missing:
            pytest.skip(
                f"not checked: {type(self).__name__} does not implement {', '.join(f'{hook}()' for hook in missing)}"
            )

    def eventually(self, probe: Callable[[], T | None], *, expected: str, mend: str) -> T:
        """Call ``probe`` until its result is true, and return the result. Fails the check if this takes longer than ``patience``."""
        __tracebackhide__ = True
        deadline = time.monotonic() + self.patience.total_seconds()
        pause = threading.Event()
        while True:
            found = probe()
            if found:
                return found
            if time.monotonic() >= deadline:
                violated(
                    expected=expected,
                    found=f"after {self.patience.total_seconds():g} s it is still {found!r}",
                    mend=mend,
                )
            pause.wait(0.02)


def checks_of(contract: type[Contract]) -> list[str]:
    """Return the names of a contract's checks."""
    return sorted(name for name in dir(contract) if name.startswith("test_"))


def shortened(value: object, length: int = 300) -> str:
    """Return ``repr`` of a value; a text longer than ``length`` is cut."""
    text = repr(value)
    return text if len(text) <= length else f"{text[:length]}… ({len(text)} characters)"
