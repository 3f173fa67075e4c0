"""Sources of contrib/ that take records while a job runs, and verbs behind them, with a plain model of what each must give."""

from __future__ import annotations

import json
import socket
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import headrace as hr

from tests.eventually import eventually

BEGIN = datetime(2026, 1, 1, 10, tzinfo=UTC)
#: Columns of every source: a number, a key, a time, and a text for patterns.
SCHEMA = {"n": "int64", "k": "string", "ts": "timestamp", "text": "string"}
Row = Mapping[str, Any]
Send = Callable[[Sequence[Row]], None]


def rows_of(begin: int, end: int) -> list[Row]:
    """Return rows, a second apart; every tenth number comes twice."""
    return [
        {"n": n - n % 10 % 2, "k": f"k{n % 3}", "ts": (BEGIN + timedelta(seconds=n)).isoformat(), "text": f"user{n % 4} took {n} ms"}
        for n in range(begin, end)
    ]  # fmt: skip


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as made:
        return int(made.getsockname()[1])


def listens(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


@dataclass(frozen=True)
class Sender:
    """A source in a directory: how its stream begins, and how records come to it while a job runs."""

    stream: hr.Stream
    #: Whether the job listens: records must be sent while it runs.
    listens_on: int | None
    send: Send

    def ready(self) -> None:
        if self.listens_on is not None:
            port = self.listens_on
            eventually(lambda: listens(port), "the source listens")


def _http(place: Path) -> Sender:
    port = free_port()
    stream = hr.stream("conformance", "http").from_http(
        port=port, buffer=str(place / "buffer"), format="json", schema=SCHEMA
    )

    def send(rows: Sequence[Row]) -> None:
        body = "".join(json.dumps(row) + "\n" for row in rows).encode()
        headers = {"Content-Type": "application/x-ndjson"}
        with urlopen(Request(f"http://127.0.0.1:{port}/", body, headers, method="POST")) as answer:
            assert json.load(answer) == {"records": len(rows)}

    return Sender(stream, port, send)


def _syslog(place: Path) -> Sender:
    port = free_port()
    stream = hr.stream("conformance", "syslog").from_syslog(
        tcp_port=port, buffer=str(place / "buffer"), format="syslog", schema={"message": "string"}
    )
    # What the message says is JSON: a second format within the first.
    parsed = stream.operator("parse_format", "json", on="message", schema=SCHEMA)

    def send(rows: Sequence[Row]) -> None:
        with socket.create_connection(("127.0.0.1", port)) as client:
            client.sendall(b"".join(f"<13>1 - h app - - - {json.dumps(row)}\n".encode() for row in rows))

    return Sender(parsed, port, send)


def _file(place: Path) -> Sender:
    (place / "in").mkdir()
    stream = hr.stream("conformance", "file").from_file(f"{place}/in/*.ndjson", format="json", schema=SCHEMA)
    return Sender(stream, None, lambda rows: _append(place / "in" / "a.ndjson", [json.dumps(row) for row in rows]))


def _cri(place: Path) -> Sender:
    """Lines of a container's log: the message is JSON, and every fifth is in two parts."""
    (place / "in").mkdir()
    stream = hr.stream("conformance", "cri").from_file(f"{place}/in/*.log", format="cri", schema={"message": "string"})

    def send(rows: Sequence[Row]) -> None:
        lines = []
        for row in rows:
            text = json.dumps(row)
            if row["n"] % 5 == 0:
                lines.append(f"2026-01-31T10:00:00.000000000Z stdout P {text[:9]}")
                text = text[9:]
            lines.append(f"2026-01-31T10:00:00.000000000Z stdout F {text}")
        _append(place / "in" / "0.log", lines)

    return Sender(stream.operator("parse_format", "json", on="message", schema=SCHEMA), None, send)


def _append(path: Path, lines: Sequence[str]) -> None:
    with path.open("a") as file:
        file.writelines(line + "\n" for line in lines)


SOURCES: Mapping[str, Callable[[Path], Sender]] = {"http": _http, "syslog": _syslog, "file": _file, "cri": _cri}


def _where(stream: hr.Stream) -> hr.Stream:
    return stream.where("n % 3 = 0 AND text LIKE 'user1%'").select("n", "k")


def _grok(stream: hr.Stream) -> hr.Stream:
    found: hr.Stream = stream.grok("^%{WORD:who} took %{INT:ms:int} ms$", on="text")
    return found.where("ms > 20").select("n", "who", "ms")


def _window(stream: hr.Stream) -> hr.Stream:
    timed: hr.Stream = stream.watermark("ts", idle_timeout="1 h")
    counts = timed.key_by("k").window(hr.tumbling("10 s", on="ts")).agg(rows="count(*)", first="min(n)")
    return counts.select("k", "window_start", "rows", "first")


def _distinct(stream: hr.Stream) -> hr.Stream:
    return stream.key_by("n").distinct().select("n")


VERBS: Mapping[str, Callable[[hr.Stream], hr.Stream]] = {
    "where": _where, "grok": _grok, "window": _window, "distinct": _distinct,
}  # fmt: skip


def expected(verb: str, rows: Sequence[Row]) -> Counter[str]:
    """Return what a verb must give, as plainly as it can be said."""
    return Counter(json.dumps(row, separators=(",", ":")) for row in _rows_of_verb(verb, rows))


def _rows_of_verb(verb: str, rows: Sequence[Row]) -> Iterator[Row]:
    if verb == "where":
        yield from ({"n": r["n"], "k": r["k"]} for r in rows if r["n"] % 3 == 0 and r["text"].startswith("user1"))
    elif verb == "grok":
        for row in rows:
            who, _, ms, _ = row["text"].split(" ")
            if int(ms) > 20:
                yield {"n": row["n"], "who": who, "ms": int(ms)}
    elif verb == "window":
        groups: dict[tuple[str, datetime], list[int]] = {}
        for row in rows:
            at = datetime.fromisoformat(row["ts"])
            groups.setdefault((row["k"], at - timedelta(seconds=at.second % 10)), []).append(row["n"])
        for (key, start), numbers in groups.items():
            shown = f"{start:%Y-%m-%dT%H:%M:%S.%fZ}"
            yield {"k": key, "window_start": shown, "rows": len(numbers), "first": min(numbers)}
    else:
        yield from ({"n": n} for n in dict.fromkeys(row["n"] for row in rows))


@contextmanager
def started(job: hr.Job, sender: Sender, backend: str, **options: Any) -> Iterator[Any]:
    with job.start(backend, **options) as handle:
        sender.ready()
        yield handle
