"""What all contracts share: how a check fails, what an author may leave out, and how long the outside world may take."""

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
    """A plug-in does not do what its base class promises. The message says what was expected and what to mend."""

    def __init__(self, expected: str, found: str, mend: str) -> None:
        self.expected = expected
        self.found = found
        self.mend = mend
        super().__init__(f"\n  expected: {expected}\n  but:      {found}\n  mend:     {mend}")


def violated(*, expected: str, found: str, mend: str) -> NoReturn:
    """Fail the running check."""
    __tracebackhide__ = True
    raise ContractViolation(expected, found, mend)


def expect(condition: object, *, expected: str, found: str, mend: str) -> None:
    """Fail the running check unless ``condition`` holds."""
    __tracebackhide__ = True
    if not condition:
        violated(expected=expected, found=found, mend=mend)


F = TypeVar("F", bound=Callable[..., Any])


def optional_hook(function: F) -> F:
    """Mark a method of a contract that an author may leave out; the checks that need it are then skipped by name."""
    function.__headrace_optional__ = True  # type: ignore[attr-defined]
    return function


def for_each(argument: str, attribute: str) -> Callable[[F], F]:
    """Make one test per entry of a class attribute, which an author may override; it is passed as ``argument``."""

    def mark(function: F) -> F:
        function.__headrace_each__ = (argument, attribute)  # type: ignore[attr-defined]
        return function

    return mark


class Contract:
    """Base of all contracts. A subclass named ``Test…`` in an author's test module gets every check as a test."""

    #: Declared weaknesses: name of a check -> why the plug-in cannot pass it. Such a check must fail (so that a weakness
    #: that is gone is taken off the list), and the run's summary shows it.
    weaknesses: ClassVar[Mapping[str, str]] = {}
    #: How long the outside world may take to show what was done to it (a new queue, a restarted server).
    patience: ClassVar[timedelta] = timedelta(seconds=30)
    #: A check that takes longer hangs, and fails with the place where it does.
    check_time_max: ClassVar[timedelta] = timedelta(minutes=5)
    #: Name of the plug-in in messages; default: the class's own.
    plugin: ClassVar[str] = ""

    #: An empty directory, new for each check.
    tmp_path: Path
    #: Letters, digits and underscores, new for each check: for tables, topics, indexes.
    unique_name: str

    @pytest.fixture(autouse=True)
    def _contract_place(self, tmp_path: Path) -> None:
        self.begin(tmp_path)

    def begin(self, tmp_path: Path) -> None:
        """Make a new place for a check. Called before each by pytest."""
        self.tmp_path = tmp_path
        self.unique_name = f"contract_{secrets.token_hex(6)}"

    def in_thread(self, action: Callable[[], T], *, what: str, mend: str) -> T:
        """Call ``action`` in a new thread and return what it returns. Fails the check when it raises, or takes ``patience``."""
        __tracebackhide__ = True
        results: list[T] = []
        errors: list[BaseException] = []

        def call() -> None:
            try:
                results.append(action())
            except BaseException as error:  # shown by the check, in its own thread
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
        """Skip the running check, saying why, unless the author provides all these hooks."""
        __tracebackhide__ = True
        missing = [hook for hook in hooks if not self.provides(hook)]
        if missing:
            pytest.skip(f"not checked: {type(self).__name__} gives no {', '.join(f'{hook}()' for hook in missing)}")

    def eventually(self, probe: Callable[[], T | None], *, expected: str, mend: str) -> T:
        """Call ``probe`` until it returns something true, at most for ``patience``. Fails the check when it never does."""
        __tracebackhide__ = True
        deadline = time.monotonic() + self.patience.total_seconds()
        pause = threading.Event()
        while True:
            found = probe()
            if found:
                return found
            if time.monotonic() >= deadline:
                violated(
                    expected=expected, found=f"after {self.patience.total_seconds():g} s still {found!r}", mend=mend
                )
            pause.wait(0.02)


def checks_of(contract: type[Contract]) -> list[str]:
    """Return the names of a contract's checks."""
    return sorted(name for name in dir(contract) if name.startswith("test_"))


def shortened(value: object, length: int = 300) -> str:
    """Return ``repr`` of a value, cut to what fits in a message."""
    text = repr(value)
    return text if len(text) <= length else f"{text[:length]}… ({len(text)} characters)"
