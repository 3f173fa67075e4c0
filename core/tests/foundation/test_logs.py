"""Events are one line each, say where they belong, are limited in rate, and show no secret."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest
from headrace.foundation.clock import ManualClock
from headrace.foundation.errors import DataError
from headrace.foundation.logs import EventFormatter, EventHandler, RateLimit, configure, one_line, place_of


def record(text: str, *arguments: object, **extra: object) -> logging.LogRecord:
    made = logging.LogRecord("headrace.test", logging.WARNING, __file__, 1, text, arguments, None)
    made.__dict__.update(extra)
    return made


@pytest.mark.parametrize(
    ("text", "arguments", "place"),
    [
        ("queue %s: %s; trying again", ("kafka/t-0", "away"), {"queue": "kafka/t-0"}),
        ("sink %s, queue %s: %s; trying again in %.1f s", ("to_x", "q", "no", 2.0), {"node": "to_x", "queue": "q"}),
        ("job %s: 100%% of queue %s", ("a.b", "q"), {"job": "a.b", "queue": "q"}),
        ("%s at offset %d", ("x", 7), {"offset": 7}),
        ("nothing here", (), {}),
    ],
)
def test_a_template_says_where_an_event_belongs(
    text: str, arguments: tuple[object, ...], place: dict[str, Any]
) -> None:
    assert place_of(record(text, *arguments)) == place


def test_what_the_caller_gives_counts_more_than_the_template_and_an_error_less() -> None:
    made = record("queue %s", "of-the-template", queue="given", offset=3)
    error = DataError("bad", job="a.b", queue="of-the-error", offset=9)
    made.exc_info = (DataError, error, None)
    assert place_of(made) == {"job": "a.b", "queue": "given", "offset": 3}


def test_a_value_cannot_forge_a_line() -> None:
    hostile = 'x\n2026-01-01 ERROR forged\r\x1b[31m\x85"}'
    [line] = EventFormatter(json=False).format(record("queue %s", hostile)).splitlines()
    assert "\\n2026-01-01 ERROR forged\\r\\x1b[31m" in line
    [line] = EventFormatter(json=True).format(record("queue %s", hostile)).split("\n")
    event = json.loads(line)
    assert (event["queue"], event["level"], event["logger"]) == (hostile, "warning", "headrace.test")
    assert one_line("a\u2028b") == "a\\u2028b"


def test_secrets_are_masked_in_text_fields_and_traces() -> None:
    made = record("queue %s: connecting to mysql://me:hunter2@db/x", "kafka://u:hunter2@h/t")
    try:
        raise ValueError("password='hunter2'")
    except ValueError as error:
        made.exc_info = (type(error), error, error.__traceback__)
    for as_json in (True, False):
        text = EventFormatter(json=as_json).format(made)
        assert "mysql://me:*******@db/x" in text
        assert "ValueError" in text
        # The source line of the raise stands in the trace as it does in the file.
        assert "hunter2" not in text


def lines_of(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_many_events_of_one_template_are_counted_instead() -> None:
    clock, stream = ManualClock(), io.StringIO()
    handler = EventHandler(stream, json=True, limit=RateLimit(3, 60.0, clock))
    for number in range(10):
        handler.handle(record("queue %s: away", f"q{number}"))
    handler.handle(record("something else"))
    assert [each["message"] for each in lines_of(stream)] == [
        "queue q0: away",
        "queue q1: away",
        "queue q2: away",
        "something else",
    ]
    clock.advance(60)
    handler.handle(record("queue %s: away", "q10"))
    assert lines_of(stream)[-1]["left_out"] == 7
    for number in range(11, 20):
        handler.handle(record("queue %s: away", f"q{number}"))
    handler.close()
    assert lines_of(stream)[-1]["message"] == "7 events like this were left out: queue %s: away"
    assert len(lines_of(stream)) == 8


@pytest.fixture
def restored() -> Iterator[None]:
    root = logging.getLogger()
    level, handlers = root.level, list(root.handlers)
    yield
    for handler in [each for each in root.handlers if each not in handlers]:
        root.removeHandler(handler)
    root.setLevel(level)


@pytest.mark.usefixtures("restored")
def test_the_level_is_for_events_of_headrace_only() -> None:
    stream = io.StringIO()
    handler = configure("json", "info", stream)
    logging.getLogger("headrace_of_a_plugin_loaded_later").info("told")
    logging.getLogger("headrace_of_a_plugin_loaded_later").debug("not told")
    logging.getLogger("library").info("not told")
    logging.getLogger("library").warning("told too")
    assert [each["message"] for each in lines_of(stream)] == ["told", "told too"]
    assert configure("console", "error", stream) is not handler
    logging.getLogger("headrace").error("once")
    assert stream.getvalue().count("once") == 1


def test_an_unknown_level_is_refused() -> None:
    with pytest.raises(ValueError, match="unknown level 'loud'"):
        configure(level="loud")
