"""What can be typed next: tables, columns, functions, keywords, the shell's own commands."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

from headrace.foundation.errors import HeadraceError
from headrace_sql import SqlSession
from headrace_sql.binding.function_names import all_names
from headrace_sql.compiling.script import Script
from headrace_sql.reading import options
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document

KEYWORDS = tuple(
    re.findall(
        r"\w+",
        """ADD ALL ALTER AND AS ASC BEGIN BETWEEN BY CASE CAST CATALOG CATALOGS COLUMNS COMMENT CREATE CROSS CUBE
CUMULATE CURRENT DATABASE DATABASES DEFINE DESC DESCRIBE DESCRIPTOR DISTINCT DROP ELSE EMIT END EXCEPT
EXCLUDING EXECUTE EXISTS EXPLAIN FALSE FETCH FILTER FIRST FOR FROM FULL FUNCTION FUNCTIONS GROUP GROUPING
HAVING HOP IF IN INCLUDING INNER INSERT INTERSECT INTERVAL INTO IS JOIN LANGUAGE LAST LATERAL LEFT LIKE LIMIT
MATCH_RECOGNIZE MEASURES METADATA MODIFY NATURAL NOT NULL NULLS OFFSET ON OR ORDER OUTER OVER OVERWRITING
PARTITION PARTITIONED PATTERN PRECEDING PRIMARY KEY PYTHON RANGE RENAME RESET RIGHT ROLLUP ROW ROWS SELECT
SESSION SET SETS SHOW STATEMENT SYSTEM_TIME TABLE TABLES TEMPORARY THEN TO TRUE TUMBLE UNBOUNDED UNION UNNEST
USE USING VALUES VIEW VIEWS WATERMARK WHEN WHERE WINDOW WITH WITHIN""",
    )
)
TYPES = tuple(
    re.findall(
        r"\w+",
        """ARRAY BIGINT BINARY BOOLEAN BYTES CHAR DATE DECIMAL DOUBLE FLOAT INT MAP SMALLINT STRING TIME TIMESTAMP
TIMESTAMP_LTZ TINYINT VARCHAR""",
    )
)
_WORD = re.compile(r"[\w$]+$")
_TABLE_BEFORE = re.compile(r"(?is)\b(FROM|JOIN|INTO|TABLE|DESCRIBE|DESC|VIEW|LIKE|UPDATE)\s+[\w.`]*$")
_NAMED = re.compile(
    r"(?is)\b(?:FROM|JOIN|INTO|TABLE)\s+([\w.`]+)(?:\s+(?:AS\s+)?(\w+))?|,\s*([\w.`]+)(?:\s+(?:AS\s+)?(\w+))?"
)
_OPTION_BEFORE = re.compile(r"(?is)^\s*(?:RE)?SET\s+'?([\w.\-]*)$")


class Known:
    """What the session knows, asked when it is needed, and asked again after each statement."""

    def __init__(self, session: SqlSession) -> None:
        self._session = session
        self._columns: dict[str, list[str]] = {}

    def forget(self) -> None:
        """Drop cached answers: a statement may have changed them."""
        self._columns.clear()

    def tables(self) -> list[str]:
        """Return the names of the tables, views and frames of the current database, and of all databases."""
        script = Script("\n", session=self._session)
        found = script.showing.names_in(script.session.place)
        registered = [name for name in (*script.session.frames, *script.session.streams) if name not in found]
        return [*found, *registered]

    def columns(self, table: str) -> list[str]:
        """Return the columns of a table; none where there is no such table, or its columns cannot be asked."""
        if table not in self._columns:
            try:
                script = Script(f"DESCRIBE {table}", session=self._session)
                answer: Any = script.queries[0].answer
                self._columns[table] = answer["name"].to_list()
            except HeadraceError:
                self._columns[table] = []
        return self._columns[table]

    def functions(self) -> list[str]:
        """Return the names of functions."""
        return sorted({*all_names(), *self._session.functions})


class SqlCompleter(Completer):
    """Completes the word before the cursor. Keywords and functions follow the case in which the word is begun."""

    def __init__(self, session: SqlSession, commands: Iterable[str]) -> None:
        self.known = Known(session)
        self._commands = sorted(commands)

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterator[Completion]:
        text = document.text_before_cursor
        begun = text.lstrip()
        if begun.startswith("\\") and " " not in begun:
            yield from _of(begun, self._commands, "command")
            return
        option = _OPTION_BEFORE.search(text)
        if option is not None and "'" in text:
            yield from _of(option[1], options.KNOWN, "option")
            return
        found = _WORD.search(text)
        word = found[0] if found else ""
        before = text[: len(text) - len(word)]
        if before.endswith("."):
            owner = re.search(r"([\w`]+)\.$", before)
            yield from _of(word, self._columns_of(document.text, owner[1] if owner else ""), "column")
            return
        if _TABLE_BEFORE.search(text) or (begun.startswith("\\d") and " " in begun):
            yield from _of(word, self.known.tables(), "table")
            return
        if not word:
            return
        yield from _of(word, self._columns_of(document.text, None), "column")
        lower = word.islower()
        yield from _of(word, _in_case(KEYWORDS, lower), "keyword")
        yield from _of(word, _in_case(self.known.functions(), lower), "function")
        yield from _of(word, _in_case(TYPES, lower), "type")
        yield from _of(word, self.known.tables(), "table")

    def _columns_of(self, text: str, owner: str | None) -> list[str]:
        """Return the columns of the tables that a text names; of one of them, by its name or alias."""
        made: dict[str, None] = {}
        for found in _NAMED.finditer(text):
            table, alias = (found[1], found[2]) if found[1] else (found[3], found[4])
            if owner is None or owner.strip("`") in (alias, table.strip("`")):
                made.update(dict.fromkeys(self.known.columns(table)))
        return list(made)


def _in_case(words: Iterable[str], lower: bool) -> list[str]:
    return [each.lower() for each in words] if lower else list(words)


def _of(word: str, names: Iterable[str], kind: str) -> Iterator[Completion]:
    for name in dict.fromkeys(names):
        if name.lower().startswith(word.lower()) and name != word:
            yield Completion(name, start_position=-len(word), display_meta=kind)
