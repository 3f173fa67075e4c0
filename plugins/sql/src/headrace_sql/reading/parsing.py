"""The statements of a text, and its dialect: mistakes are shown at their place."""

from __future__ import annotations

import re

from headrace.foundation import errors
from headrace.foundation.errors import ExpressionError, PlanError, did_you_mean
from headrace_columnar import dialect as columnar_dialect
from sqlglot import exp
from sqlglot.errors import ErrorLevel, ParseError, TokenError

from headrace_sql.reading.dialect import Blink, Flink
from headrace_sql.reading.nodes import REFUSAL
from headrace_sql.reading.table_hints import with_table_hints

_BLINK_MARKS = re.compile(r"(?is)\bwith\s*\(\s*(type|topic)\s*=|\bwithoffset\s*\(|\bdata_format\s*=")


def parse(text: str, dialect: str | None = None) -> tuple[list[exp.Expr], str]:
    """Return the statements of a text and the name of its dialect. Raises ExpressionError with the place of a mistake."""
    name = dialect or ("blink" if _BLINK_MARKS.search(text) else "flink")
    if name not in ("flink", "blink"):
        raise PlanError(f"unknown SQL dialect {name!r}", hint=did_you_mean(name, ["flink", "blink"], known="dialects"))
    made = Blink() if name == "blink" else Flink()
    try:
        tokens = made.tokenize(text)
        statements = made.parser(error_level=ErrorLevel.IMMEDIATE).parse(tokens, text)
        with_table_hints(text, tokens, statements)
    except TokenError as error:
        raise columnar_dialect.token_error(text, error) from None
    except ParseError as error:
        raise _parse_error(text, error) from None
    except RecursionError:
        raise ExpressionError("the statement is nested too deeply", text=text, position=0) from None
    return [each for each in statements if each is not None and not isinstance(each, exp.Semicolon)], name


_HINTS = (
    (re.compile(r"(?is)\bover\s*\(.*\brange\b.*unbounded following"), "only preceding rows are known in a stream"),
    (re.compile(r"^LIKE$"), "write the columns out"),
)


def _parse_error(text: str, error: ParseError) -> ExpressionError:
    made = columnar_dialect.parse_error(text, error)
    made.message = made.message.replace(f"syntax: {REFUSAL}", REFUSAL)
    word = text[made.position or 0 : (made.position or 0) + made.length]
    known = [
        "SELECT",
        "INSERT INTO",
        "CREATE TABLE",
        "CREATE VIEW",
        "CREATE FUNCTION",
        "CREATE DATABASE",
        "CREATE CATALOG",
        "DROP",
        "ALTER",
        "USE",
        "SHOW",
        "DESCRIBE",
        "SET",
        "RESET",
        "EXPLAIN",
        "BEGIN STATEMENT SET",
    ]
    if "is not a statement" in made.message:
        made.hint = did_you_mean(word.upper(), known, known="statements")
    elif '"' in word or text[max(0, (made.position or 0) - 1)] == '"':
        made.hint = "names stand in backticks: `name`; text stands in single quotes: 'text'"
    elif made.hint is None and not made.message.startswith(REFUSAL):
        made.hint = _near_keyword(word)
    if made.message.startswith("syntax: Expected TYPE after CAST"):
        made.message, made.hint = f"unknown type {word!r}", None
    return made


_KEYWORDS = ("SELECT", "FROM", "WHERE", "GROUP", "HAVING", "INSERT", "INTO", "CREATE", "TABLE", "VIEW", "FUNCTION", "WATERMARK",
             "PRIMARY",
             "INTERVAL", "PARTITION", "BETWEEN", "LATERAL", "WITH", "UNION", "ORDER", "JOIN", "VALUES",
             "MATCH_RECOGNIZE", "EMIT")  # fmt: skip


def _near_keyword(word: str) -> str | None:
    found = errors.nearest(word.upper(), list(_KEYWORDS))
    return f"did you mean {found}?" if found and found != word.upper() else None
