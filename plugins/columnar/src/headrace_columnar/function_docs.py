"""The documentation page of the SQL functions, made from their table: ``python -m headrace_columnar.function_docs``."""

from __future__ import annotations

import datetime
import sys
from collections.abc import Iterator
from decimal import Decimal
from importlib import import_module

from headrace_columnar import page_command
from headrace_columnar.registry import KINDS, Function, load

_HEAD = """\
# SQL functions

<!-- Made by `python -m headrace_columnar.function_docs docs/functions.md`; do not edit by hand. -->

After this page you can use every function of SQL expressions.

The functions of this page can be called in `where`, `select`, `with_columns`, `script` and rules. Their names are not
case-sensitive. Unless a line says otherwise, the result is NULL if an argument is NULL. Tests run each example, once with
constants and once with columns.

User functions (`@hr.udf`) are called in the same way. A user function takes precedence over a function of this page with the same name.

Where Spark and Flink differ, headrace does what Flink does, unless a line says otherwise.
"""
_RULES = (
    "**Names.** Columns are case-sensitive and quoted as `\"x\"` or `` `x` ``; text is quoted as `'it''s'`. A backslash in "
    "text is an ordinary character.",
    "**NULL.** Logic is three-valued. A condition that is NULL drops the row.",
    "**Whole numbers.** `+ - *` give int64 and wrap around beyond 64 bits (as in Flink); `/` and `DIV` cut toward zero; "
    "`%` has the sign of the dividend.",
    "**Decimals** are exact: `1.5` is a decimal, `1.5e0` a float64. Results have as many digits as in Spark and Flink, "
    "and are NULL if they need more than 38 digits.",
    "**Floats** follow IEEE 754, but NaN equals NaN and is greater than any number (as in Spark). "
    "A float32 combined with a whole number is a float32; combined with a decimal or a float64 it is a float64. Spark does the "
    "same; Flink does the same except for float64.",
    "**Division by zero** of whole numbers and decimals: the row fails and goes to the dead letters (Flink stops the "
    "job). `try_divide` gives NULL.",
    "**CAST.** A value that does not fit makes the row fail, which sends it to the dead letters (Flink and Spark stop "
    "the job). `TRY_CAST` gives NULL. A literal that does not fit is an error when the job is built.",
    "**Types.** Text is combined with values of other types only by a CAST. One exception: a literal is compared with a date "
    "or time, `ts >= '2024-05-06'`.",
    "**LIKE.** `%` and `_` match line breaks too. There is no escape character unless `ESCAPE` names one. `ILIKE` "
    "compares in lower case.",
    "**Regular expressions** are those of Rust: linear time, Unicode `\\d \\w \\s`, `.` without line feed, `$` only at the "
    "very end. Patterns with look-around, a back reference or an atomic group, and `regexp_extract_all` with a group, "
    "run in the [regex](https://pypi.org/project/regex/) package instead, row by "
    "row. This package backtracks, so its time is limited to 0.1 s of CPU time, plus 1 s per million characters. A value that "
    "takes longer fails its row. A pattern from a column must be valid in Rust's syntax and have at most 1,000 characters, "
    "also when repetitions `{n,m}` are written out; otherwise the row fails ([why](adr/013-regular-expressions.md)).",
    "**Evaluation.** `AND`, `OR`, `CASE`, `IF` and `COALESCE` evaluate their operands from left to right. An operand that is "
    "not needed for a row cannot fail the row, and its user functions are not called.",
    "**Times.** A timestamp is an instant, shown in UTC. Where a timestamp is needed, a date stands for its midnight in UTC.",
    "**Arrays** are counted from 1: `a[1]`; `a[-1]` is the last element.",
)


def page() -> str:
    """Return the whole page."""
    rules = "\n".join(f"- {rule}" for rule in _RULES)
    return "\n".join([_HEAD, f"## Rules of the language\n\n{rules}\n", *_sections(), _kinds()])


def _sections() -> Iterator[str]:
    functions = list(load().values())
    for category in dict.fromkeys(function.category for function in functions):
        module = import_module(f"headrace_columnar.functions.{category}")
        yield f"## {category.replace('_', ' ').capitalize()}\n"
        yield f"{(module.__doc__ or '').strip()}\n"
        yield "| function | gives | for example |\n|---|---|---|"
        yield from (_row(function) for function in functions if function.category == category)
        yield ""


def _row(function: Function) -> str:
    signatures = "<br>".join(f"`{signature.text(function.name)}`" for signature in function.signatures)
    if function.aliases:
        signatures += f"<br>also {', '.join(f'`{alias}`' for alias in function.aliases)}"
    examples = "<br>".join(f"{_code(sql)} → {_code(_shown(answer))}" for sql, answer in function.examples)
    summary = function.summary + ("" if function.deterministic else " **Not replayable.**")
    return "| " + " | ".join(_cell(text) for text in (signatures, summary, examples)) + " |"


def _code(text: str) -> str:
    return f"`` {text} ``" if "`" in text else f"`{text}`"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def _shown(answer: object) -> str:
    if answer is None:
        return "NULL"
    if isinstance(answer, bool):
        return str(answer).lower()
    if isinstance(answer, str):
        return "'" + answer.replace("'", "''") + "'"
    if isinstance(answer, bytes):
        return f"X'{answer.hex().upper()}'"
    if isinstance(answer, datetime.datetime):
        return answer.strftime("%Y-%m-%d %H:%M:%S") + (f".{answer.microsecond:06}" if answer.microsecond else "")
    if isinstance(answer, list):
        return f"[{', '.join(map(_shown, answer))}]"
    if isinstance(answer, dict):
        return "{" + ", ".join(f"{name}: {_shown(value)}" for name, value in answer.items()) + "}"
    return str(answer) if isinstance(answer, Decimal | datetime.date) else repr(answer)


def _kinds() -> str:
    lines = [f"| `{kind}` | {meaning} |" for kind, meaning in KINDS.items()]
    return "\n".join(["## Words in the signatures\n", "| | |", "|---|---|", *lines, ""])


def main(arguments: list[str] | None = None) -> int:
    """Write the page to a file, or with ``--check`` say whether that file is up to date."""
    return page_command.run("headrace_columnar.function_docs", __doc__, "docs/functions.md", page, arguments)


if __name__ == "__main__":
    sys.exit(main())
