"""The documentation page of SQL's functions: ``python -m headrace_sql.function_docs docs/sql-functions.md``."""

from __future__ import annotations

import re
import sys

from headrace_columnar import page_command

from headrace_sql.binding.function_names import aggregate_names, scalar_names
from headrace_sql.function_cases import CASES, UNSUPPORTED, Case
from headrace_sql.operators.over_functions import OverCall

_HEAD = """\
# Functions in SQL texts

<!-- Made by `python -m headrace_sql.function_docs docs/sql-functions.md`; do not edit by hand. -->

After this page you know which functions a SQL text can call, and what they answer.

Every function of [functions.md](functions.md) can also be called by its name. Tests run each line of the table. Where Flink and Blink
(rsqldb's documents) differ, headrace answers as Flink does, in both dialects; the last column then shows the answer in Blink's documents.

| expression | answer | Flink | Blink | Blink's documents say |
|---|---|---|---|---|
"""


def page() -> str:
    """Return the whole page."""
    lines = [_HEAD + "\n".join(map(_row, CASES)), "", "## Aggregate functions", ""]
    lines.append(", ".join(f"`{name}`" for name in aggregate_names()) + "; user aggregates (`hr.udaf`).")
    lines += [
        "",
        "With `OVER`: " + ", ".join(f"`{name}`" for name in OverCall.FUNCTIONS) + ", user aggregates.",
        "",
    ]
    lines += ["## All names of scalar functions", "", ", ".join(f"`{name}`" for name in scalar_names()) + ".", ""]
    lines += ["## Not supported", "", "| what | instead |", "|---|---|"]
    lines += [f"| {_cell(what)} | {_cell(instead)} |" for what, instead in UNSUPPORTED.items()]
    return "\n".join(lines) + "\n"


def _row(case: Case) -> str:
    answer = "NULL" if case.answer is None else f"`{_cell(case.answer)}`" if case.answer else "(empty)"
    differs = (
        "" if case.blink_differs is None else f"`{_cell(case.blink_differs)}`" if case.blink_differs else "(empty)"
    )
    return f"| `{_cell(case.sql)}` | {answer} | {'yes' if case.flink else 'no'} | yes | {differs} |"


def _cell(text: str) -> str:
    return re.sub(r"\s+", " ", text).replace("|", "\\|")


def main(arguments: list[str] | None = None) -> int:
    """Write the page to a file, or with ``--check`` say whether that file is up to date."""
    return page_command.run("headrace_sql.function_docs", __doc__, "docs/sql-functions.md", page, arguments)


if __name__ == "__main__":
    sys.exit(main())
