"""Bulk requests, several at a time, and the server's answer for each row."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
from headrace.foundation.errors import DataError, HeadraceError, JobError, RetriableError
from numpy.typing import NDArray

from headrace_elasticsearch.connection import NDJSON, RETRIABLE_STATUSES, Connection, index_path, reason_of
from headrace_elasticsearch.settings import ElasticsearchSinkSettings, columns_of, has_time

_TOO_LARGE = 413
#: Types of errors that concern the index or the job and not the row, regardless of their status.
_MISSING_HINT = "create it, or let the server do so (action.auto_create_index)"
_JOB_ERRORS: Mapping[str, tuple[str, str]] = {
    "index_not_found_exception": ("index", _MISSING_HINT),
    "index_closed_exception": ("index", "open the index"),
    "routing_missing_exception": ("routing", "the mapping asks for a routing: routing='...'"),
}


class _Head(msgspec.Struct):
    errors: bool


class _Item(msgspec.Struct):
    status: int
    error: dict[str, Any] | str | None = None


class _Answer(msgspec.Struct):
    items: list[dict[str, _Item]]


_head = msgspec.json.Decoder(_Head).decode
_answer = msgspec.json.Decoder(_Answer).decode


@dataclass
class Outcome:
    """The outcome of a request's rows: which are stored, which are refused and why, and which error must be raised afterwards."""

    stored: list[int]
    refused: dict[int, str]
    error: HeadraceError | None = None

    def add(self, other: Outcome) -> None:
        """Add the outcome of other rows. Errors that stop the job have priority over bad rows, and bad rows over temporary errors."""
        self.stored += other.stored
        self.refused |= other.refused
        self.error = max((self.error, other.error), key=_weight)


def _weight(error: HeadraceError | None) -> int:
    return 0 if error is None else 1 if isinstance(error, RetriableError) else 3 if isinstance(error, JobError) else 2


class Bulk:
    """Sends lines to one index. Safe in several threads."""

    def __init__(self, settings: ElasticsearchSinkSettings, connection: Connection) -> None:
        self._settings = settings
        self._connection = connection
        goes_by_row = has_time(settings.index) or bool(columns_of(settings.index))
        self._path = "/_bulk" if goes_by_row else index_path(settings.index, "_bulk")
        self._query = {"filter_path": "errors,items.*.status,items.*.error"}
        if settings.pipeline is not None:
            self._query["pipeline"] = settings.pipeline
        if settings.refresh != "false":
            self._query["refresh"] = settings.refresh

    def send(
        self, rows: NDArray[np.int64], make: Callable[[NDArray[np.int64]], list[bytes]], executor: Executor
    ) -> Outcome:
        """Send rows in several requests, several at a time; ``make`` gives the lines of some of them.

        The outcome is by the place in ``rows``. Raises nothing: errors are part of it.
        """
        whole = Outcome([], {})
        sending: list[Future[Outcome]] = []
        for begin, end in self._groups(len(rows)):
            try:
                lines = make(rows[begin:end])
            except DataError as error:  # wait for the requests in progress
                whole.error = error
                break
            parts = list(self._parts(lines))
            if len(rows) == end and begin == 0 and len(parts) == 1:
                return self._send_part(lines, 0)
            sending += [executor.submit(self._send_part, lines[part], begin + part.start) for part in parts]
        for future in sending:
            whole.add(future.result())
        return whole

    def _groups(self, count: int) -> Iterator[tuple[int, int]]:
        """Yield where requests begin and end. Requests have equal sizes, and there are enough of them to use all parallel connections."""
        at_once = self._settings.parallel_requests
        parts = -(-count // self._settings.request_rows)
        if parts > 1:
            parts = min(count, -(-parts // at_once) * at_once)
        ends = [count * part // parts for part in range(parts + 1)]
        return zip(ends, ends[1:], strict=False)  # noqa: RUF007

    def _parts(self, lines: Sequence[bytes]) -> Iterator[slice]:
        """Yield parts of at most ``request_bytes``, or of one row when it is larger."""
        ends = np.cumsum(np.fromiter(map(len, lines), dtype=np.int64, count=len(lines)))
        begin = 0
        while begin < len(lines):
            done = int(ends[begin - 1]) if begin else 0
            end = max(begin + 1, int(np.searchsorted(ends, done + self._settings.request_bytes, side="right")))
            yield slice(begin, end)
            begin = end

    def _send_part(self, lines: Sequence[bytes], first: int) -> Outcome:
        """Send lines in one request; ``first`` is the row of the first."""
        try:
            status, content = self._connection.request(
                "POST", self._path, b"".join(lines), query=self._query, content_type=NDJSON, allow=(_TOO_LARGE,)
            )
        except HeadraceError as error:
            return Outcome([], {}, error)
        if status == _TOO_LARGE:
            return self._halved(lines, first)
        try:
            if not _head(content).errors:
                return Outcome(list(range(first, first + len(lines))), {})
            items = _answer(content).items
        except msgspec.DecodeError as error:
            return Outcome([], {}, _odd_answer(content, str(error)))
        if len(items) != len(lines):
            return Outcome([], {}, _odd_answer(content, f"{len(items)} items for {len(lines)} rows"))
        return self._judged(items, first)

    def _halved(self, lines: Sequence[bytes], first: int) -> Outcome:
        """Send a request that was too large for the server in two halves; a row that is too large by itself is refused."""
        if len(lines) == 1:
            size = len(lines[0])
            return Outcome(
                [], {first: f"it takes {size:,} bytes, more than the server takes (http.max_content_length)"}
            )
        middle = len(lines) // 2
        whole = self._send_part(lines[:middle], first)
        whole.add(self._send_part(lines[middle:], first + middle))
        return whole

    def _judged(self, items: list[dict[str, _Item]], begin: int) -> Outcome:
        outcome = Outcome([], {})
        for row, entry in enumerate(items, begin):
            [(action, item)] = entry.items()
            if item.error is None or self._is_replay(action, item):
                outcome.stored.append(row)
                continue
            found = self._error(item)
            if isinstance(found, str):
                outcome.refused[row] = found
            elif outcome.error is None or isinstance(found, JobError):
                outcome.error = found
        return outcome

    def _is_replay(self, action: str, item: _Item) -> bool:
        """Return whether the server has the row, or a newer one of the same id, already."""
        settled = self._settings.version is not None or action == "create"
        return item.status == 409 and settled

    def _error(self, item: _Item) -> HeadraceError | str:
        """Return why the row is refused, or the error to raise when it is not the row's fault."""
        error = item.error if isinstance(item.error, dict) else {"reason": item.error}
        kind, reason = str(error.get("type", "")), reason_of(error)
        text = f"{reason} (status {item.status}, {kind})"
        index = error.get("index", self._settings.index)
        where = f"{self._connection.where}, index {index!r}: {text}"
        if kind in _JOB_ERRORS:
            option, hint = _JOB_ERRORS[kind]
            return JobError(where, plugin="elasticsearch", option=option, hint=hint)
        if item.status in RETRIABLE_STATUSES or item.status == 409:
            return RetriableError(where, plugin="elasticsearch")
        if item.status != 400:
            return self._connection.refused(item.status, msgspec.json.encode({"error": error}), "index")
        if "pipeline with id" in reason:
            hint = "create the pipeline, or name another"
            return JobError(where, plugin="elasticsearch", option="pipeline", hint=hint)
        if "op_type of create" in reason:
            hint = "the name is that of a data stream: data_stream=True"
            return JobError(where, plugin="elasticsearch", option="data_stream", hint=hint)
        if kind == "invalid_index_name_exception" and not columns_of(self._settings.index):
            return JobError(where, plugin="elasticsearch", option="index", hint="choose another one")
        return text


def _odd_answer(content: bytes, problem: str) -> JobError:
    return JobError(
        f"the server's answer to a bulk request cannot be read: {problem}: {content[:80]!r}",
        plugin="elasticsearch",
        option="url",
        hint="check that the address is that of an Elasticsearch server, and that no proxy changes its answers",
    )
