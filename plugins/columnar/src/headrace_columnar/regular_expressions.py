"""Regular expressions that a value cannot make slow: which engine runs a pattern, and what bounds it.

Rust's regex crate (in polars) runs in time proportional to the text. Rust does not know look-around, back references
and atomic groups. A pattern of the job that has one runs in the ``regex`` package, row by row. If a value takes too
long, its row fails. Its calls let signals in and release the GIL. A pattern that comes from a column is written by
whoever writes the records: only Rust runs it, and its size is bounded.
"""

from __future__ import annotations

import functools
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import polars as pl
from headrace.foundation.errors import DataError
from headrace_columnar.rowwise import by_series

if TYPE_CHECKING:
    from headrace_columnar.compiler import Compiler

#: A pattern as the ``regex`` package, which says nothing of its types, has compiled it.
_Compiled = Any

_NEEDS_BACKTRACKING = (
    "look-around",
    "backreferences are not supported",
    "unrecognized flag",
    "unrecognized escape sequence",
)
#: What one value may take of the process's CPU time in a pattern that backtracks: so much, and so much a character.
_SECONDS_MAX, _SECONDS_A_CHARACTER = 0.1, 1e-6
#: A pattern of the job that backtracks: its length, and its size with ``{n,m}`` written out. The ``regex`` package
#: writes repetitions out, so that 30 characters could ask for all the memory there is.
_CONSTANT_LENGTH_MAX, _CONSTANT_SIZE_MAX = 10_000, 50_000
#: A pattern from a column. Rust's time is proportional to this size, too.
COLUMN_LENGTH_MAX, COLUMN_SIZE_MAX = 1_000, 1_000
#: The reason why a row fails if its pattern is refused; the pattern is put before it.
COLUMN_REFUSAL = (
    "is not a pattern that a column may give: Rust's syntax without look-around and back references, at most "
    f"{COLUMN_LENGTH_MAX:,} characters, {COLUMN_SIZE_MAX:,} with repetitions {{n,m}} written out"
)


class PatternError(ValueError):
    """A pattern that cannot be understood; the text says why."""


@functools.lru_cache(maxsize=1024)
def engine(pattern: str) -> str:
    """Return which engine runs a pattern of the job: ``"rust"``, or ``"backtracking"`` (the ``regex`` package).

    Raises PatternError if neither can, or if the pattern is too large for the second.
    """
    try:
        pl.Series([""]).str.contains(pattern, strict=True)
    except pl.exceptions.ComputeError as error:
        reason = _reason(str(error))
        if not any(words in reason for words in _NEEDS_BACKTRACKING):
            raise PatternError(reason) from None
        if len(pattern) > _CONSTANT_LENGTH_MAX or size(pattern) > _CONSTANT_SIZE_MAX:
            raise PatternError(
                f"{reason}; and it is too large for the second engine (at most {_CONSTANT_LENGTH_MAX:,} "
                f"characters, {_CONSTANT_SIZE_MAX:,} with repetitions {{n,m}} written out)"
            ) from None
        try:
            compiled(pattern)
        except PatternError as of_python:
            raise PatternError(f"{reason}; and in Python's re: {of_python}") from None
        return "backtracking"
    return "rust"


def groups(pattern: str) -> int:
    """Return how many groups a pattern of the job has, as the engine that runs it counts them. Raises PatternError."""
    if engine(pattern) == "backtracking":
        counted: int = compiled(pattern).groups
        return counted
    found = pl.Series([""]).str.extract_groups(pattern).dtype
    return len(found.fields) if isinstance(found, pl.Struct) else 0


def _reason(message: str) -> str:
    for line in message.splitlines():
        if line.startswith("error: "):
            return line.removeprefix("error: ")
    first = message.splitlines()[0] if message else "not a regular expression"
    return first.removeprefix("regex error: ").removeprefix("error: ")


@functools.lru_cache(maxsize=1024)
def compiled(pattern: str) -> _Compiled:
    """Return the pattern for the ``regex`` package: one that Python's ``re`` knows too. Raises PatternError.

    Features of the package alone (fuzzy matching, recursion, its own flags) are refused: rules are found by the texts that
    a pattern needs, which would not be so there.
    """
    import regex

    translated = _translated(pattern)
    if _FUZZY.search(pattern):
        raise PatternError("a brace that begins no repetition is written \\{")
    try:
        with warnings.catch_warnings():
            # "[[" may mean a nested set in the future; here it has its present meaning in Python.
            warnings.simplefilter("ignore", FutureWarning)
            re.compile(translated)
            return regex.compile(translated, regex.VERSION0)
    except (re.error, regex.error, RecursionError, OverflowError, MemoryError) as error:
        raise PatternError(str(error)) from None


def _translated(pattern: str) -> str:
    """Return the pattern with the meaning that it would have in Rust: ``$`` only at the very end."""
    out: list[str] = []
    in_class = False
    multiline = re.match(r"\(\?[a-zA-Z]*m", pattern) is not None
    position = 0
    while position < len(pattern):
        character = pattern[position]
        if character == "\\":
            pair = pattern[position : position + 2]
            out.append(r"\Z" if pair == r"\z" and not in_class else pair)
            position += 2
            continue
        if character == "[" and not in_class:
            in_class = True
            # A bracket right behind the opening one is an ordinary character.
            head = re.match(r"\[\^?\]?", pattern[position:])
            assert head is not None
            out.append(head[0])
            position += len(head[0])
            continue
        if character == "]":
            in_class = False
        out.append(r"\Z" if character == "$" and not in_class and not multiline else character)
        position += 1
    return "".join(out)


_FUZZY = re.compile(r"(?<!\\)\{[^}]*[esid<][^}]*\}")
_COUNT = re.compile(r"\{(\d{0,9})(?:(,)(\d{0,9}))?\}")


def size(pattern: str) -> int:
    """Return the size of a pattern with its repetitions ``{n,m}`` written out; an estimate, never far too small."""
    #: Per open group: its size so far, and that of its last item, which a repetition multiplies.
    groups: list[list[int]] = [[0, 0]]
    position = 0
    while position < len(pattern):
        character = pattern[position]
        group = groups[-1]
        position += 1
        if character == "(":
            groups.append([1, 0])
            continue
        if character == ")" and len(groups) > 1:
            inner = groups.pop()
            item = sum(inner)
            groups[-1] = [sum(groups[-1]), item]
            continue
        if character == "{" and (found := _COUNT.match(pattern, position - 1)) is not None:
            times = max(int(found[1] or 0), int(found[3] or 0), 1)
            group[1] = max(group[1], 1) * times
            position = found.end()
            continue
        if character == "\\":
            position += 1
            if pattern[position - 1 : position] in ("p", "P") and pattern[position : position + 1] == "{":
                # A class by name, \p{Lu}: the braces are no repetition.
                position = (pattern.find("}", position) + 1) or len(pattern)
        elif character == "[":
            position = _end_of_class(pattern, position)
        groups[-1] = [sum(group), 1]
    return sum(map(sum, groups))


def _end_of_class(pattern: str, position: int) -> int:
    """Return the place behind the bracket that closes a class; its content begins at ``position``."""
    depth, begin = 1, position
    while position < len(pattern):
        character = pattern[position]
        position += 1
        if character == "\\":
            position += 1
        elif character == "[":
            depth += 1
        elif character == "]" and position - 1 > begin + pattern.startswith("^", begin):
            depth -= 1
            if not depth:
                break
    return position


@functools.lru_cache(maxsize=4096)
def is_column_pattern(pattern: str) -> bool:
    """Return whether a pattern from a column is run: Rust's, and not too large. ``COLUMN_REFUSAL`` tells the rule."""
    if len(pattern) > COLUMN_LENGTH_MAX or size(pattern) > COLUMN_SIZE_MAX:
        return False
    try:
        pl.Series([""]).str.contains(pattern, strict=True)
    except pl.exceptions.ComputeError:
        return False
    return True


@dataclass(frozen=True)
class BacktrackingCall:
    """A call of the ``regex`` package as the evaluator makes it: row by row, and a row whose value takes too long fails.

    ``apply`` is called with the compiled pattern, the text, the seconds that it may take, and further arguments. Without
    a pattern of its own, the call is given one behind the text.
    """

    pattern: str | None
    apply: Callable[..., Any]
    return_type: pl.DataType
    name: str = "regular expression"
    vectorized: bool = False
    deterministic: bool = True

    @property
    def function(self) -> Callable[..., Any]:
        return self._of_constant if self.pattern is not None else self._of_column

    def _of_constant(self, text: str | None, *others: Any) -> Any:
        assert self.pattern is not None
        return self._bounded(compiled(self.pattern), text, others)

    def _of_column(self, text: str | None, pattern: str | None, *others: Any) -> Any:
        if text is None or pattern is None:
            return None
        # Those that are refused fail their rows by a check.
        return self._bounded(compiled(pattern), text, others) if is_column_pattern(pattern) else None

    def _bounded(self, pattern: _Compiled, text: str | None, others: tuple[Any, ...]) -> Any:
        if text is None or None in others:
            return None
        try:
            return self.apply(pattern, text, _SECONDS_MAX + _SECONDS_A_CHARACTER * len(text), *others)
        except TimeoutError:
            raise DataError(
                f"the regular expression {shortened(pattern.pattern)} takes too long for this value of {len(text):,} "
                "characters",
                hint="the pattern backtracks; without look-around and back references it needs linear time",
            ) from None


def shortened(text: str) -> str:
    """Return a pattern as error messages show it."""
    return repr(text if len(text) <= 60 else text[:59] + "…")


def backtracking(
    compiler: Compiler,
    pattern: str | None,
    apply: Callable[..., Any],
    data_type: pl.DataType,
    values: Sequence[pl.Expr],
) -> pl.Expr:
    """Compile a call of the ``regex`` package; ``values`` are the text, the pattern if none is given, and what else
    ``apply`` takes."""
    return compiler.add_call(BacktrackingCall(pattern, apply, data_type), list(values))


def refuse_patterns(
    compiler: Compiler,
    what: str,
    text: pl.Expr,
    pattern: pl.Expr,
    test: Callable[[str], bool] = is_column_pattern,
    refusal: str = COLUMN_REFUSAL,
) -> None:
    """Let rows fail whose pattern, from a column, does not pass ``test``; ``refusal`` says why."""
    usable = pattern.map_batches(functools.partial(_tested, test), return_dtype=pl.Boolean, is_elementwise=True)
    compiler.fail_when(text.is_not_null() & ~usable, f"{what}: {{value}} {refusal}", pattern)


def _tested(test: Callable[[str], bool], patterns: pl.Series) -> pl.Series:
    distinct = patterns.unique().drop_nulls()
    verdicts: Mapping[str, bool] = {pattern: test(pattern) for pattern in distinct.to_list()}
    return pl.Series(patterns.name, [verdicts.get(one) for one in patterns.to_list()], dtype=pl.Boolean)


def by_pattern(
    values: Sequence[pl.Expr],
    build: Callable[..., pl.Expr | None],
    data_type: pl.DataType,
) -> pl.Expr:
    """Evaluate for a pattern that comes from a column, one distinct pattern (and further arguments) at a time.

    ``values`` are the text, the pattern and further arguments; ``build`` is called with the text as an expression and the
    others as Python values, and returns the result as an expression, None for NULL. A row is NULL where any value is.
    """
    return by_series(values, functools.partial(_by_pattern, build, data_type), data_type)


def _by_pattern(build: Callable[..., pl.Expr | None], data_type: pl.DataType, *columns: pl.Series) -> pl.Series:
    names = [str(number) for number in range(1, len(columns))]
    frame = pl.DataFrame([one.alias(name) for one, name in zip(columns, ["text", *names], strict=True)])
    parts = []
    for others, part in frame.with_row_index("row").drop_nulls().group_by(names, maintain_order=True):
        made = build(pl.col("text"), *others)
        if made is not None:
            parts.append(part.select("row", made.alias("made")))
    if not parts:
        return pl.Series([None], dtype=data_type).new_from_index(0, frame.height)
    found = pl.concat(parts)
    places = pl.Series([None], dtype=pl.UInt32).new_from_index(0, frame.height)
    places = places.scatter(found["row"], pl.int_range(found.height, dtype=pl.UInt32, eager=True))
    return found["made"].gather(places)
