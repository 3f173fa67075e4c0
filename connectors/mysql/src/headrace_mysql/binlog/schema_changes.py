"""What a statement in the binary log does to the columns of a table.

Columns that are added or dropped are understood. What else changes values of columns, or removes rows that are not in the log, is
refused with the statement.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from headrace.foundation.errors import JobError

from headrace_mysql.tables import TableColumn

#: Parts of ALTER TABLE, by their first words, that leave the columns and their values as they are.
_HARMLESS = re.compile(
    r"(ADD (UNIQUE|INDEX|KEY|FULLTEXT|SPATIAL|CONSTRAINT|FOREIGN|CHECK)|DROP (INDEX|KEY|FOREIGN|CONSTRAINT|CHECK)|RENAME (INDEX|KEY)"
    r"|ALTER (INDEX|CONSTRAINT|CHECK)|ENGINE|AUTO_INCREMENT|AVG_ROW_LENGTH|COMMENT|ROW_FORMAT|KEY_BLOCK_SIZE|ALGORITHM|LOCK|FORCE"
    r"|DISABLE|ENABLE|ORDER|STATS_\w+|MAX_ROWS|MIN_ROWS|PAGE_\w+|CHECKSUM|DELAY_KEY_WRITE|PACK_KEYS|INSERT_METHOD"
    r"|(DEFAULT )?(CHARACTER|CHARSET|COLLATE)|ANALYZE|CHECK|OPTIMIZE|REBUILD|REPAIR)\b"
)
_COLUMN_DEFAULT = re.compile(r"ALTER (COLUMN )?.+ (SET DEFAULT|DROP DEFAULT|SET (IN)?VISIBLE)\b")
_RESERVED_AFTER_ADD = {"PERIOD", "SYSTEM", "PARTITION", "PRIMARY"}
_RESERVED_AFTER_DROP = {"PERIOD", "SYSTEM", "PARTITION", "PRIMARY"}
Token = tuple[str, str]


class SchemaChanges:
    """Follows the columns of one table through the statements of the log.

    ``describe(name)`` gives a column as the table has it now, for one that was added; None for one that is gone again.
    """

    def __init__(
        self, database: str, table: str, describe: Callable[[str], TableColumn | None], *, ignore_truncate: bool
    ) -> None:
        self._database = database
        self._table = table
        self._describe = describe
        self._ignore_truncate = ignore_truncate

    def after(self, database: str, statement: str, columns: tuple[TableColumn, ...]) -> tuple[TableColumn, ...]:
        """Return the columns after a statement; the same object if it does not change them. Raises JobError when it cannot be followed."""
        folded = statement.casefold()
        # Quoted, a backtick in a name is doubled. A statement that drops a database does not name its tables.
        if self._table.casefold() not in folded.replace("``", "`") and "drop" not in folded:
            return columns
        tokens = _tokens(statement)
        words = [text.upper() if kind == "word" else "" for text, kind in tokens]
        if words[:1] == ["ALTER"] and "TABLE" in words[:4]:
            at = words.index("TABLE") + 1
            names, at = self._name(tokens, _skip(words, at, "IF", "EXISTS"), database)
            # MariaDB: how long the statement waits for the table's lock stands before what it does.
            waits = 2 if words[at : at + 1] == ["WAIT"] else 1 if words[at : at + 1] == ["NOWAIT"] else 0
            return self._altered(tokens[at + waits :], columns, statement) if self._is_own(names) else columns
        self._check_gone(words, tokens, database, statement)
        return columns

    def _check_gone(self, words: Sequence[str], tokens: Sequence[Token], database: str, statement: str) -> None:
        """Raise JobError for statements that remove the table, or all of its rows, or put another one in its place."""
        verb = words[0] if words else ""
        if verb == "TRUNCATE":
            names, _ = self._name(tokens, _skip(words, 1, "TABLE"), database)
            if self._is_own(names) and not self._ignore_truncate:
                raise self._refused(statement, "it removes rows that are not in the log", truncate=True)
        elif verb == "DROP" and words[1:2] in (["DATABASE"], ["SCHEMA"]):
            at = _skip(words, 2, "IF", "EXISTS")
            if tokens[at : at + 1] and tokens[at][0].casefold() == self._database.casefold():
                raise self._refused(statement, "the table does not exist any more")
        elif (verb in ("DROP", "RENAME") and "TABLE" in words[1:4]) or (
            verb == "CREATE" and words[1:4] == ["OR", "REPLACE", "TABLE"]
        ):
            for at in range(words.index("TABLE") + 1, len(tokens)):
                begins = tokens[at][1] != "sign" and tokens[at - 1] != (".", "sign")
                if begins and self._is_own(self._name(tokens, at, database)[0]):
                    raise self._refused(statement, "it removes, renames or replaces the table")

    def _altered(
        self, tokens: Sequence[Token], columns: tuple[TableColumn, ...], statement: str
    ) -> tuple[TableColumn, ...]:
        changed = list(columns)
        for part in _parts(tokens):
            words = [text.upper() for text, _ in part]
            text = _shown(part)
            if not part or _COLUMN_DEFAULT.match(text):
                continue
            if words[0] == "ADD" and _HARMLESS.match(text) is None:
                self._add(changed, part, words, statement)
            elif words[0] == "DROP" and _HARMLESS.match(text) is None:
                self._drop(changed, part, words, statement)
            elif part[0][1] != "word" or _HARMLESS.match(text) is None:
                raise self._refused(statement, f"{text[:60]} may change values of rows")
        return columns if changed == list(columns) else tuple(changed)

    def _add(self, columns: list[TableColumn], part: Sequence[Token], words: Sequence[str], statement: str) -> None:
        at = _skip(words, 1, "COLUMN")
        maybe = words[at : at + 3] == ["IF", "NOT", "EXISTS"]
        at = _skip(words, at, "IF", "NOT", "EXISTS")
        if part[at : at + 1] == [("(", "sign")]:
            for each in _parts(part[at + 1 : -1]):
                if _HARMLESS.match(f"ADD {_shown(each)}") is None:
                    self._add(
                        columns, [("ADD", "word"), *each], ["ADD", *(text.upper() for text, _ in each)], statement
                    )
            return
        if part[at][1] == "word" and words[at] in _RESERVED_AFTER_ADD:
            if words[at] == "PRIMARY":
                return
            raise self._refused(statement, f"{' '.join(words)[:60]} may change values of rows")
        name = part[at][0]
        known = [column.name.casefold() for column in columns]
        if maybe and name.casefold() in known:
            return
        added = self._describe(name) or TableColumn(name, "", "")
        place = len(columns)
        if words[-1] == "FIRST" and part[-1][1] == "word":
            place = 0
        elif len(words) > 2 and words[-2] == "AFTER" and part[-2][1] == "word":
            if part[-1][0].casefold() not in known:
                raise self._refused(statement, f"the table had no column {part[-1][0]!r}")
            place = known.index(part[-1][0].casefold()) + 1
        columns.insert(place, added)

    def _drop(self, columns: list[TableColumn], part: Sequence[Token], words: Sequence[str], statement: str) -> None:
        at = _skip(words, _skip(words, 1, "COLUMN"), "IF", "EXISTS")
        if part[at][1] == "word" and words[at] in _RESERVED_AFTER_DROP:
            if words[at] == "PRIMARY":
                return
            raise self._refused(statement, f"{' '.join(words)[:60]} may change values of rows")
        name = part[at][0].casefold()
        columns[:] = [column for column in columns if column.name.casefold() != name]

    def _name(self, tokens: Sequence[Token], at: int, database: str) -> tuple[tuple[str, str], int]:
        """Return (database, table) at a place, and the place behind them."""
        first = tokens[at][0] if at < len(tokens) else ""
        if tokens[at + 1 : at + 2] == [(".", "sign")] and at + 2 < len(tokens):
            return (first, tokens[at + 2][0]), at + 3
        return (database, first), at + 1

    def _is_own(self, names: tuple[str, str]) -> bool:
        # Whether names depend on case is the server's setting; two tables whose names differ in case only are rare.
        return tuple(map(str.casefold, names)) == (self._database.casefold(), self._table.casefold())

    def _refused(self, statement: str, why: str, *, truncate: bool = False) -> JobError:
        more = ", or go on without it: ignore_truncate=True" if truncate else ""
        return JobError(
            f"table {self._database}.{self._table} was changed by a statement that the job cannot follow: {why}: "
            f"{statement.strip()[:300]}",
            plugin="mysql_changes",
            option="table",
            hint=f"empty what the job has written, and start it with a new checkpoint: it reads the table anew{more}",
        )


def _shown(part: Sequence[Token]) -> str:
    """Return the text of a part in upper case. Names stay in backticks: a column may be called as a keyword."""
    return " ".join(f"`{text.upper()}`" if kind == "name" else text.upper() for text, kind in part)


def _skip(words: Sequence[str], at: int, *expected: str) -> int:
    return at + len(expected) if list(words[at : at + len(expected)]) == list(expected) else at


def _parts(tokens: Sequence[Token]) -> list[list[Token]]:
    """Return the parts between commas that are in no parentheses."""
    parts: list[list[Token]] = [[]]
    depth = 0
    for token in tokens:
        depth += (token == ("(", "sign")) - (token == (")", "sign"))
        if token == (",", "sign") and depth == 0:
            parts.append([])
        else:
            parts[-1].append(token)
    return parts


_TOKEN = re.compile(
    r"(?P<comment>/\*(?!M?!).*?\*/|--[ \t][^\n]*|\#[^\n]*)|(?P<version>/\*M?!\d*|\*/)|`(?P<name>(?:[^`]|``)*)`"
    r"|(?P<text>'(?:[^'\\]|''|\\.)*'|\"(?:[^\"\\]|\"\"|\\.)*\")|(?P<word>[\w$\u0080-\uffff]+)|(?P<sign>\S)",
    re.DOTALL,
)


def _tokens(statement: str) -> list[Token]:
    """Return (text, kind) of the words, names, texts and signs of a statement, without comments."""
    found = []
    for match in _TOKEN.finditer(statement):
        kind = match.lastgroup or ""
        if kind in ("comment", "version"):
            continue
        text = match[kind]
        found.append((text.replace("``", "`") if kind == "name" else text, kind))
    return found
