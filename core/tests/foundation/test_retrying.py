"""Trying again: pauses, what ends it, and who is told, by a clock that the test moves."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import timedelta

import pytest
from headrace.foundation.clock import ManualClock
from headrace.foundation.errors import JobError, RetriableError
from headrace.foundation.retrying import Backoff, Outages, Tries, until_done


class TestBackoff:
    def test_pauses_double_up_to_a_limit(self) -> None:
        clock = ManualClock()
        backoff = Backoff(first_seconds=0.1, seconds_max=1.0, monotonic=clock.monotonic)
        assert backoff.remaining_seconds() == 0
        assert [backoff.failed() for _ in range(6)] == pytest.approx([0.1, 0.2, 0.4, 0.8, 1.0, 1.0])
        assert backoff.remaining_seconds() == pytest.approx(1.0)
        clock.advance(0.75)
        assert backoff.remaining_seconds() == pytest.approx(0.25)
        clock.advance(10)
        assert backoff.remaining_seconds() == 0

    def test_success_forgets_failures(self) -> None:
        backoff = Backoff(monotonic=ManualClock().monotonic)
        backoff.failed()
        backoff.failed()
        backoff.succeeded()
        assert backoff.remaining_seconds() == 0
        assert backoff.failed() == pytest.approx(0.1)

    def test_chance_halves_a_pause_at_most(self) -> None:
        backoff = Backoff(first_seconds=1, monotonic=ManualClock().monotonic, jitter=lambda: 1.0)
        assert backoff.failed() == pytest.approx(0.5)

    def test_very_many_failures(self) -> None:
        backoff = Backoff(monotonic=ManualClock().monotonic)
        assert [backoff.failed() for _ in range(5000)][-1] == 5.0


def test_outages_are_known_by_name_and_begin_once() -> None:
    clock = ManualClock()
    outages = Outages(clock)
    assert outages.goes_on("a") is None
    clock.advance(3)
    assert outages.goes_on("b") is None
    assert outages.goes_on("a") == 3
    assert outages.is_over("a")
    assert not outages.is_over("a")
    assert outages.goes_on("a") is None


class Server:
    """Fails for some calls, and notes when it was called."""

    def __init__(self, clock: ManualClock, *errors: Exception) -> None:
        self.errors = list(errors)
        self.clock = clock
        self.called_seconds: list[float] = []

    def ask(self) -> str:
        self.called_seconds.append(self.clock.monotonic())
        if self.errors:
            raise self.errors.pop(0)
        return "answer"


def ask(
    server: Server, failed: Callable[[Exception, Tries], None], *, stopping: threading.Event | None = None
) -> tuple[str, int]:
    back: list[str] = []
    made = until_done(
        server.ask,
        clock=server.clock,
        stopping=stopping or threading.Event(),
        retriable=RetriableError,
        failed=failed,
        back=lambda: back.append("back"),
    )
    return made, len(back)


def test_an_action_that_works_is_done_once_and_nobody_is_told() -> None:
    server = Server(ManualClock())
    assert ask(server, lambda error, tries: pytest.fail("it has not failed")) == ("answer", 0)


def test_each_failure_is_told_with_what_is_known_of_the_tries() -> None:
    server = Server(ManualClock(), *(RetriableError(str(number)) for number in range(3)))
    told: list[tuple[str, int, float]] = []
    made = ask(server, lambda error, tries: told.append((str(error), tries.failures, tries.waited_seconds)))
    assert made == ("answer", 1)
    assert [each[:2] for each in told] == [("0", 1), ("1", 2), ("2", 3)]
    assert [each[2] for each in told] == pytest.approx([0.0, 0.1, 0.3])


def test_what_the_server_asks_for_is_the_least_pause_and_the_caller_may_change_it() -> None:
    clock = ManualClock()
    server = Server(clock, RetriableError("busy", after=timedelta(seconds=7)), RetriableError("busy"))

    def failed(error: Exception, tries: Tries) -> None:
        if tries.failures == 2:
            tries.pause_seconds = 0.01

    ask(server, failed)
    assert server.called_seconds == pytest.approx([0.0, 7.0, 7.01])


def test_what_cannot_be_retried_and_what_is_given_up_end_the_tries() -> None:
    with pytest.raises(JobError):
        ask(Server(ManualClock(), JobError("wrong password")), lambda error, tries: None)

    def give_up(error: Exception, tries: Tries) -> None:
        if tries.waited_seconds >= 1:
            raise TimeoutError from error

    with pytest.raises(TimeoutError):
        ask(Server(ManualClock(), *(RetriableError("away") for _ in range(100))), give_up)


def test_a_stop_ends_the_wait_and_the_action_is_tried_once_more() -> None:
    stopping = threading.Event()
    server = Server(ManualClock(), RetriableError("away"), RetriableError("away"))

    def failed(error: Exception, tries: Tries) -> None:
        if stopping.is_set():
            raise error
        stopping.set()

    with pytest.raises(RetriableError):
        ask(server, failed, stopping=stopping)
    assert server.called_seconds == [0.0, 0.0]
