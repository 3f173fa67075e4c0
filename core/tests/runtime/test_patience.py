"""What a start does while a server is away: it waits by a clock that the test moves."""

from __future__ import annotations

import logging
import threading
from datetime import timedelta

import pytest
from headrace.foundation.clock import ManualClock
from headrace.foundation.errors import JobError, RetriableError
from headrace.runtime.patience import Patience


class Server:
    """Is away for some calls."""

    def __init__(self, calls_away: int) -> None:
        self.calls_away = calls_away
        self.calls = 0

    def ask(self) -> str:
        self.calls += 1
        if self.calls <= self.calls_away:
            raise RetriableError("connection refused", hint="is it running?")
        return "answer"


def patience(seconds: float) -> tuple[Patience, ManualClock]:
    clock = ManualClock()
    return Patience("shop.orders", timedelta(seconds=seconds), clock), clock


def test_a_server_that_comes_back_is_waited_for(caplog: pytest.LogCaptureFixture) -> None:
    made, clock = patience(60)
    server = Server(calls_away=15)
    with caplog.at_level(logging.WARNING):
        assert made.wait_for("source orders", server.ask) == "answer"
    texts = [record.message for record in caplog.records]
    assert texts[0] == "job shop.orders waits for source orders, up to 60 s more: connection refused"
    assert texts[-1] == "job shop.orders continues: source orders is available"
    assert len(texts) == 2 + int(clock.monotonic() // 10), "told now and then, not at each try"


def test_all_waiting_of_one_start_lasts_as_long_as_the_option_says() -> None:
    made, clock = patience(10)
    made.wait_for("sink a", Server(calls_away=6).ask)
    waited = clock.monotonic()
    assert 0 < waited < 10
    with pytest.raises(RetriableError, match="connection refused") as caught:
        made.wait_for("sink b", Server(calls_away=1000).ask)
    assert clock.monotonic() == pytest.approx(10)
    assert caught.value.hint == "is it running?; it was waited for 10 s (start_timeout)"


def test_without_patience_it_fails_at_once() -> None:
    made, clock = patience(0)
    server = Server(calls_away=1)
    with pytest.raises(RetriableError):
        made.wait_for("sink", server.ask)
    assert (server.calls, clock.monotonic()) == (1, 0)


def test_a_mistake_is_not_waited_for() -> None:
    made, clock = patience(60)
    calls = 0

    def wrong_password() -> None:
        nonlocal calls
        calls += 1
        raise RetriableError("away") if calls == 1 else JobError("wrong password")

    with pytest.raises(JobError, match="wrong password"):
        made.wait_for("sink", wrong_password)
    assert clock.monotonic() == pytest.approx(0.1)


def test_a_stop_ends_the_waiting() -> None:
    stopping, clock = threading.Event(), ManualClock()
    made, server = Patience("shop.orders", timedelta(minutes=1), clock, stopping=stopping), Server(calls_away=10)
    stopping.set()
    with pytest.raises(RetriableError):
        made.wait_for("sink", server.ask)
    assert (server.calls, clock.monotonic()) == (1, 0)


def test_an_interrupt_ends_the_waiting() -> None:
    class Interrupting(ManualClock):
        def wait(self, event: object, seconds: float) -> bool:
            raise KeyboardInterrupt

    made = Patience("shop.orders", timedelta(minutes=1), Interrupting())
    with pytest.raises(KeyboardInterrupt):
        made.wait_for("sink", Server(calls_away=10).ask)
