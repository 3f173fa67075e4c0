"""The documentation page of what of Flink SQL works here: ``python -m headrace_sql.support_docs docs/sql-support.md``.

Each row of the page is made by running its text, and shows the result.
"""

from __future__ import annotations

import datetime
import re
import sys
import tempfile
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any

from headrace.foundation.errors import HeadraceError
from headrace_columnar import page_command

from headrace_sql.api import sql
from headrace_sql.binding.session import SqlSession
from headrace_sql.support_cases import SCALARS, Case
from headrace_sql.support_statements import EVENTS, RATES, SETUP, STATEMENTS

_HEAD = """\
# What of Flink SQL works

<!-- Made by `python -m headrace_sql.support_docs docs/sql-support.md`; do not edit by hand. -->

After this page you know for each statement, clause and function of Flink's documentation whether it works in headrace, and if not,
why. A program ran the text of each row and wrote the result into the last column; a test runs it again. For a function, “works”
means that headrace gives the same answer as Flink. [Functions of SQL](sql-functions.md) has the functions of Blink, and
[SQL texts](sql.md#differences-that-change-results) the differences that change results.

The queries read `v(k, x)`: ('a', 1), ('b', 2), ('a', 3); `u(k, n)`: ('a', 'A'), ('c', 'C'); a table `e(k, x, ts)` of six events, and a
table `r(k, rate, ts)` of rates with a key.

"""


def page() -> str:
    """Return the whole page. Runs every text, on light."""
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        (place / "e.ndjson").write_text(EVENTS, encoding="utf-8")
        (place / "r.ndjson").write_text(RATES, encoding="utf-8")
        parts = [_HEAD]
        for title, cases in STATEMENTS.items():
            parts.append(f"## {title}\n\n| what | text | here |\n|---|---|---|")
            parts += [_statement_row(case, place) for case in cases]
            parts.append("")
        for title, cases in SCALARS.items():
            parts.append(f"## {title} functions\n\n| what | text | here |\n|---|---|---|")
            parts += _scalar_rows(cases)
            parts.append("")
    return "\n".join(parts).replace(name, "…")


def _statement_row(case: Case, place: Path) -> str:
    session = SqlSession()
    files = {"EVENTS": str(place / "e.ndjson"), "RATES": str(place / "r.ndjson")}
    try:
        sql(SETUP, session=session, variables=files)
        job = sql(case.text + "\n", session=session)
        made = job.collect() if job.script.inserts or job.script.queries else None
    except HeadraceError as error:
        return _row(case, _refused(error))
    if made is None:
        return _row(case, "works")
    frame = list(made.values())[-1] if isinstance(made, dict) else made
    rows = sorted(", ".join("NULL" if each is None else shown(each) for each in row) for row in frame.rows())
    text = "; ".join(f"({each})" for each in rows)
    if frame.columns == ["result"] and frame.height == 1 and "\n" in str(frame["result"][0]):
        text = str(frame["result"][0]).split("\n")[0] + " …"
    return _row(case, f"works: {text if len(text) <= 160 else text[:159] + '…'}" if text else "works: no rows")


def _scalar_rows(cases: tuple[Case, ...]) -> list[str]:
    """Return the rows of expressions: those that can be compiled are computed by one job."""
    refused: dict[int, str] = {}
    for number, case in enumerate(cases):
        try:
            sql(f"SELECT {case.text} AS a\n", session=SqlSession())
        except HeadraceError as error:
            refused[number] = _refused(error)
    fine = [number for number in range(len(cases)) if number not in refused]
    answers: dict[int, Any] = {}
    failed: set[int] = set()
    for number in fine:
        if "beyond" in cases[number].name:
            failed.add(number)
    safe = [number for number in fine if number not in failed]
    if safe:
        items = ", ".join(f"{cases[number].text} AS a{number}" for number in safe)
        row = sql(f"SELECT {items}\n", session=SqlSession()).collect().row(0)
        answers = dict(zip(safe, row, strict=True))
    made = []
    for number, case in enumerate(cases):
        if number in refused:
            made.append(_row(case, refused[number]))
        elif number in failed:
            made.append(_row(case, f"different: {case.why}"))
        else:
            got = None if answers[number] is None else shown(answers[number])
            told = "NULL" if got is None else got
            made.append(
                _row(
                    case,
                    f"works: {told}"
                    if same(got, case.answer)
                    else f"different: {told}; Flink: {case.answer}; {case.why}",
                )
            )
    return made


def _refused(error: HeadraceError) -> str:
    message = error.message.removeprefix("syntax: ").removeprefix("not supported: ")
    message = re.sub(r" but got <Token.*", "", message)
    return f"refused: {message}" + (
        f" ({error.hint})" if error.hint and len(error.hint) < 100 and "known" not in error.hint else ""
    )


def shown(value: Any) -> str:
    """Return a value as the page shows it."""
    if isinstance(value, bool):
        return str(value).upper()
    if isinstance(value, datetime.datetime):
        return value.strftime("%Y-%m-%d %H:%M:%S" + (".%f" if value.microsecond else "")).rstrip(
            "0" if value.microsecond else ""
        )
    return str(value)


def same(got: str | None, wanted: str | None) -> bool:
    """Return whether an answer is Flink's: numbers by value."""
    if got is None or wanted is None:
        return got is wanted
    try:
        return Decimal(got) == Decimal(wanted)
    except InvalidOperation:
        return got == wanted


def _row(case: Case, here: str) -> str:
    return f"| {_cell(case.name)} | `{_cell(case.text)}` | {_cell(here)} |"


def _cell(text: str) -> str:
    return re.sub(r"\s+", " ", text).replace("|", "\\|")


def main(arguments: list[str] | None = None) -> int:
    """Write the page to a file, or with ``--check`` say whether that file is up to date."""
    return page_command.run("headrace_sql.support_docs", __doc__, "docs/sql-support.md", page, arguments)


if __name__ == "__main__":
    sys.exit(main())
