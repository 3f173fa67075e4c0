"""The exceptions of headrace, sorted by what the caller should do.

HeadraceError
├── JobError            mend the job or its configuration; retrying does not help
│   ├── PlanError           the plan does not fit together
│   ├── ExpressionError     a SQL expression is wrong; knows the place in the text
│   ├── OptionError         an option is unknown, missing or of the wrong type
│   ├── MissingPluginError  no installed plug-in offers the named thing
│   ├── PluginConflictError two installed plug-ins offer the same name
│   ├── FunctionError       a user function cannot be found or does not fit
│   └── CheckpointError     a checkpoint does not belong to this job or cannot be read
├── RetriableError      the outside world was not ready; the same call may succeed later
├── DataError           look at the data: one record or batch cannot be processed
│   └── BrokenQueueError    one queue cannot be read as it is; the others can
└── JobFailedError      a running job stopped because of an error; its cause is chained
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import timedelta

from headrace.foundation.secrecy import masked

#: Of a line of a text that is shown beside an error; longer ones are cut around the mistake.
_LINE_CHARACTERS = 160


class HeadraceError(Exception):
    """Base of every exception that headrace raises on purpose.

    The keyword arguments say where it happened and how to mend it; each is shown in the message when given. Values of
    passwords, keys and the like that the message quotes are masked.
    """

    def __init__(
        self,
        message: str,
        *,
        hint: str | None = None,
        job: str | None = None,
        plugin: str | None = None,
        option: str | None = None,
        queue: str | None = None,
        offset: int | None = None,
    ) -> None:
        self.message = masked(message)
        self.hint = hint
        self.job = job
        self.plugin = plugin
        self.option = option
        self.queue = queue
        self.offset = offset
        super().__init__(self.message)

    def __str__(self) -> str:
        where = [
            f"{name} {value!r}" if isinstance(value, str) else f"{name} {value}"
            for name in ("job", "plugin", "option", "queue", "offset")
            if (value := getattr(self, name)) is not None
        ]
        text = self.message
        if where:
            text += f" [{', '.join(where)}]"
        if self.hint:
            text += f"\n  hint: {self.hint}"
        return text

    def __reduce__(self) -> tuple[object, ...]:
        # Exceptions cross process borders (Spark's workers): rebuild from the attributes, not from args.
        return (_rebuild, (type(self), self.__dict__.copy()))


@contextmanager
def located(*, job: str | None = None, plugin: str | None = None) -> Iterator[None]:
    """Say in headrace's errors that pass through where they happened, as far as they do not say it."""
    try:
        yield
    except HeadraceError as error:
        error.job = error.job or job
        error.plugin = error.plugin or plugin
        raise


def _rebuild(kind: type[HeadraceError], attributes: dict[str, object]) -> HeadraceError:
    error = kind.__new__(kind, attributes.get("message"))
    error.__dict__.update(attributes)
    return error


class JobError(HeadraceError):
    """The job, its plan or its configuration is wrong. Mend it; retrying does not help."""


class PlanError(JobError):
    """The plan does not fit together, for example a sink that cannot take what reaches it."""


class ExpressionError(JobError):
    """A SQL expression is wrong: syntax, an unknown column or function, or types that do not fit.

    ``text`` is the whole expression, ``position`` the index in it of the first wrong character and ``length`` how
    many characters are wrong; ``str()`` shows the text with that part underlined.
    """

    def __init__(
        self,
        message: str,
        *,
        text: str | None = None,
        position: int | None = None,
        length: int = 1,
        hint: str | None = None,
        job: str | None = None,
        plugin: str | None = None,
    ) -> None:
        super().__init__(message, hint=hint, job=job, plugin=plugin)
        self.text = text
        self.position = position
        self.length = max(1, length)

    def __str__(self) -> str:
        base = super().__str__()
        if self.text is None or self.position is None:
            return base
        line_start = self.text.rfind("\n", 0, self.position) + 1
        line_end = self.text.find("\n", self.position)
        line = masked(self.text)[line_start : len(self.text) if line_end < 0 else line_end]
        line_number = self.text.count("\n", 0, self.position) + 1
        column = self.position - line_start
        shown_line, shown_column = _around(line, column)
        mark = " " * shown_column + "^" * min(self.length, max(1, len(shown_line) - shown_column))
        head, _, hint = base.partition("\n  hint: ")
        shown = f"{head}\n  line {line_number}, column {column + 1}:\n    {shown_line}\n    {mark}"
        return f"{shown}\n  hint: {hint}" if hint else shown


def _around(line: str, column: int) -> tuple[str, int]:
    """Return a line and a column in it. Of a very long line, return only the part around the column."""
    if len(line) <= _LINE_CHARACTERS:
        return line, column
    begin = max(0, min(column, len(line)) - _LINE_CHARACTERS // 2)
    part = line[begin : begin + _LINE_CHARACTERS]
    before = "…" if begin else ""
    return f"{before}{part}{'…' if begin + len(part) < len(line) else ''}", column - begin + len(before)


class OptionError(JobError):
    """An option of a plug-in or of a run is unknown, missing, or has an unusable value."""


class MissingPluginError(JobError):
    """A source, sink, backend, codec, … was named that no installed distribution offers."""


class PluginConflictError(JobError):
    """Two installed distributions offer the same name."""


class FunctionError(JobError):
    """A user function cannot be imported, has no usable signature, or is used where it does not fit."""


class CheckpointError(JobError):
    """A checkpoint belongs to another job, was written by a newer version, or is damaged."""


class RetriableError(HeadraceError):
    """The outside world was not ready (connection lost, server busy). The same call may succeed later.

    Sinks raise it from ``batch_insert`` to ask for a retry with back-off; ``after`` is the least time to wait.
    """

    def __init__(
        self,
        message: str,
        *,
        after: timedelta | None = None,
        hint: str | None = None,
        job: str | None = None,
        plugin: str | None = None,
        option: str | None = None,
        queue: str | None = None,
        offset: int | None = None,
    ) -> None:
        super().__init__(message, hint=hint, job=job, plugin=plugin, option=option, queue=queue, offset=offset)
        self.after = after


class DataError(HeadraceError):
    """A record or batch cannot be processed whatever the number of tries. It belongs in the dead letters."""


class BrokenQueueError(DataError):
    """One queue cannot be read as it is: no permission, a read error of its disk, damaged content, records that are gone.

    Others can be read. Sources and readers raise it. Runtimes set the queue aside, read on in the others, and try it again now
    and then from where it stood. A server that is away is a RetriableError instead.
    """


class JobFailedError(HeadraceError):
    """A running job stopped because of an error. The error itself is ``__cause__``."""


#: What a function of the user may raise without its row being to blame. The job tries again, or stops; any other exception makes the
#: row a dead letter. A process without free memory may fail anywhere next, so it must not continue.
NOT_THE_FAULT_OF_A_ROW = (RetriableError, JobError, MemoryError)


def nearest(name: str, candidates: Iterable[str]) -> str | None:
    """Return the candidate most like ``name`` (ignoring case), or None when nothing is near enough to suggest."""
    by_folded = {candidate.casefold(): candidate for candidate in candidates}
    found = difflib.get_close_matches(name.casefold(), by_folded, n=1, cutoff=0.6)
    return by_folded[found[0]] if found else None


def did_you_mean(name: str, candidates: Iterable[str], *, known: str, in_order: bool = False) -> str:
    """Return a hint for an unknown ``name``: the nearest candidate, else all of them (``known`` says what they are).

    They are sorted, unless they come ``in_order``: the most important ones first, as a long list is cut.
    """
    names = list(dict.fromkeys(candidates)) if in_order else sorted(set(candidates))
    near = nearest(name, names)
    if near is not None:
        return f"did you mean {near!r}?"
    if not names:
        return f"there are no {known}"
    shown = ", ".join(names[:20]) + (", …" if len(names) > 20 else "")
    return f"{known}: {shown}"
