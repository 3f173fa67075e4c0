"""Logs of a process: one line per event, as JSON or for people, with the place in separate fields, limited in rate.

``configure`` is called by programs that own the process (``headrace run``, servers), never by libraries.
"""

from __future__ import annotations

import logging
import re
import sys
from collections import OrderedDict
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal, TextIO

import msgspec

from headrace.foundation.clock import Clock, SystemClock
from headrace.foundation.secrecy import masked

#: Where an event belongs. A logger call gives them by ``extra={"queue": …}``, or by the words of its template: ``"queue %s: …"``.
FIELDS = ("job", "node", "queue", "offset")
#: What templates say instead of ``node``.
_WORDS = {"job": "job", "queue": "queue", "offset": "offset", "sink": "node", "source": "node", "node": "node"}
_PLACE = re.compile(r"(?:\b(?P<word>[a-z]+) )?%(?P<format>%|[-#0 +]*\d*(?:\.\d+)?[a-zA-Z])")
_LINES = re.compile(r"[\r\n\x0b\x0c\x1c-\x1e\x85\u2028\u2029]")
_CONTROLS = re.compile(r"[\x00-\x08\x0e-\x1f\x7f\x80-\x9f]")
#: Events of one template that are logged per interval.
EVENTS_MAX = 20
INTERVAL_SECONDS = 60.0
#: Templates that are counted; the ones that were silent longest are forgotten.
_TEMPLATES_MAX = 1_000


def place_of(record: logging.LogRecord) -> dict[str, Any]:
    """Return job, node, queue and offset of an event, as far as it tells them."""
    place: dict[str, Any] = {}
    arguments = record.args if isinstance(record.args, tuple) else ()
    found = (each for each in _PLACE.finditer(str(record.msg)) if each["format"] != "%")
    for each, value in zip(found, arguments, strict=False):
        name = _WORDS.get(each["word"] or "")
        if name is not None:
            place.setdefault(name, value)
    error = record.exc_info[1] if record.exc_info else None
    for name, attribute in zip(FIELDS, ("job", "plugin", "queue", "offset"), strict=True):
        if getattr(error, attribute, None) is not None:
            place.setdefault(name, getattr(error, attribute))
        if record.__dict__.get(name) is not None:
            place[name] = record.__dict__[name]
    return {name: place[name] if isinstance(place[name], int) else str(place[name]) for name in FIELDS if name in place}


def wanted(record: logging.LogRecord) -> bool:
    """Return whether an event is written: all events of headrace, and those of other libraries from WARNING on."""
    return record.levelno >= logging.WARNING or record.name.startswith("headrace")


def one_line(text: str) -> str:
    """Return a text with line breaks and control characters escaped: nobody's value can forge a line or colour a terminal."""
    text = _LINES.sub(lambda found: repr(found[0])[1:-1], text)
    return _CONTROLS.sub(lambda found: f"\\x{ord(found[0]):02x}", text)


class EventFormatter(logging.Formatter):
    """Makes one line of an event. ``json``: an object a line; else the level, the text and the fields that the text does not have."""

    def __init__(self, *, json: bool) -> None:
        super().__init__()
        self._json = json

    def format(self, record: logging.LogRecord) -> str:
        message = masked(record.getMessage())
        time = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        place = {name: masked(value) if isinstance(value, str) else value for name, value in place_of(record).items()}
        left_out = record.__dict__.get("left_out")
        trace = masked(self.formatException(record.exc_info)) if record.exc_info and record.exc_info[0] else None
        if self._json:
            event = {
                "time": time,
                "level": record.levelname.lower(),
                "logger": record.name,
                "message": message,
                **place,
            }
            if left_out:
                event["left_out"] = left_out
            if trace is not None:
                event["exception"] = trace
            return msgspec.json.encode(event).decode("utf-8", "replace")
        fields = "".join(f" {name}={value}" for name, value in place.items() if str(value) not in message)
        more = f" ({left_out} events like this were left out)" if left_out else ""
        text = f"{time} {record.levelname:<7} {message}{fields}{more}"
        return one_line(text if trace is None else f"{text} | {trace}")


@dataclass
class _Window:
    """What was logged of one template since ``begun``."""

    begun: float
    count: int = 0
    left_out: int = 0


class RateLimit(logging.Filter):
    """Lets ``events_max`` events of one template through per interval. The next one after that says how many were left out.

    ``left_out`` returns the events that were left out last, if no event of that template follows.
    """

    def __init__(
        self, events_max: int = EVENTS_MAX, interval_seconds: float = INTERVAL_SECONDS, clock: Clock | None = None
    ) -> None:
        super().__init__()
        self._events_max = events_max
        self._interval_seconds = interval_seconds
        self._clock = clock or SystemClock()
        self._windows: OrderedDict[tuple[str, int, str], _Window] = OrderedDict()

    def filter(self, record: logging.LogRecord) -> bool:
        now = self._clock.monotonic()
        key = (record.name, record.levelno, str(record.msg))
        window = self._windows.get(key)
        if window is None:
            window = self._windows[key] = _Window(now)
        self._windows.move_to_end(key)
        while len(self._windows) > _TEMPLATES_MAX:
            self._windows.popitem(last=False)
        if now - window.begun >= self._interval_seconds:
            if window.left_out:
                record.left_out = window.left_out
            self._windows[key] = window = _Window(now)
        if window.count >= self._events_max:
            window.left_out += 1
            return False
        window.count += 1
        return True

    def left_out(self) -> dict[str, int]:
        """Return how many events were left out and not reported yet, by template, and reset the counts."""
        found = {key[2]: window.left_out for key, window in self._windows.items() if window.left_out}
        for window in self._windows.values():
            window.left_out = 0
        return found


class LimitedHandler(logging.Handler):
    """Base of handlers of events: takes those that are ``wanted``, limited in rate.

    ``close`` reports the events that were left out and not reported yet.
    """

    def __init__(self, *, limit: RateLimit | None = None, **more: Any) -> None:
        """``more`` is for the other base of a subclass."""
        super().__init__(**more)
        self._limit = limit or RateLimit()

    def handle(self, record: logging.LogRecord) -> bool:
        if not wanted(record):
            return False
        with self.lock:  # type: ignore[union-attr]  # the limit counts for all threads
            if not self._limit.filter(record):
                return False
            self.emit(record)
        return True

    def close(self) -> None:
        for template, count in self._limit.left_out().items():
            text = f"{count} events like this were left out: {template}"
            self.emit(logging.LogRecord(__name__, logging.WARNING, __file__, 0, text, None, None))
        super().close()


class EventHandler(LimitedHandler, logging.StreamHandler[TextIO]):
    """Writes events to a stream."""

    def __init__(self, stream: TextIO, *, json: bool, limit: RateLimit | None = None) -> None:
        super().__init__(limit=limit, stream=stream)
        self.setFormatter(EventFormatter(json=json))


def configure(
    format: Literal["console", "json"] = "console",
    level: str = "warning",
    stream: TextIO | None = None,
    *,
    limit: RateLimit | None = None,
) -> EventHandler:
    """Write the events of this process to a stream (default: standard error). It replaces an earlier configuration.

    ``level`` is for the events of headrace; those of other libraries are written from WARNING on. Raises ValueError for an
    unknown level. The caller removes the handler with ``logging.getLogger().removeHandler`` and closes it.
    """
    number = logging.getLevelNamesMapping().get(level.upper())
    if number is None:
        raise ValueError(f"unknown level {level!r}: debug, info, warning or error")
    handler = EventHandler(stream or sys.stderr, json=format == "json", limit=limit)
    root = logging.getLogger()
    for other in list(root.handlers):
        if isinstance(other, EventHandler):
            root.removeHandler(other)
            other.close()
    root.addHandler(handler)
    # Packages that are imported later have loggers too: the level is the root's, and the handler leaves out others' chatter.
    root.setLevel(number)
    return handler
