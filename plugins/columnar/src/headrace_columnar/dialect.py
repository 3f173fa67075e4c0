"""SQL text to syntax tree: the sqlglot dialect of headrace's expressions, and the places of its nodes in the text.

Imported only when the first expression string is compiled, because sqlglot takes a while to import.
"""

from __future__ import annotations

import re
import threading
from functools import lru_cache
from typing import Any, ClassVar

from headrace.foundation.errors import ExpressionError
from sqlglot import exp
from sqlglot import parser as sqlglot_parser
from sqlglot import tokens as sqlglot_tokens
from sqlglot.dialects.dialect import Dialect
from sqlglot.errors import ErrorLevel, ParseError, SqlglotError, TokenError

_TokenType: Any = sqlglot_tokens.TokenType  # type: ignore[attr-defined]  # re-exported without saying so
_BASE_KEYWORDS = sqlglot_tokens.Tokenizer.KEYWORDS
_BASE_PARSERS = sqlglot_parser.Parser.FUNCTION_PARSERS

#: Words that are keywords for sqlglot but plain names for us, because people call columns so.
_PLAIN_WORDS = ("CURRENT_USER", "CURRENT_ROLE", "SESSION_USER", "COMMENT", "DESC", "ASC")
#: Words of a schema that no token has: ``INT`` and ``FLOAT`` are 64 bits wide here, as in a schema.
_OWN_TYPES = ("INT32", "FLOAT32")
_KEPT_FUNCTION_PARSERS = ("CAST", "TRY_CAST", "EXTRACT", "TRIM", "SUBSTRING", "POSITION", "OVERLAY")


class Headrace(Dialect):
    """ANSI expressions with the spellings that Spark and Flink share.

    Every function call is kept by name (``exp.Anonymous``), so that one table of ours says which functions exist and
    what they mean. A backslash is an ordinary character in a string, as in standard SQL.
    """

    class Tokenizer(sqlglot_tokens.Tokenizer):
        QUOTES: ClassVar[list[Any]] = ["'"]
        IDENTIFIERS: ClassVar[list[Any]] = ['"', "`"]
        STRING_ESCAPES: ClassVar[list[str]] = ["'"]
        IDENTIFIER_ESCAPES: ClassVar[list[str]] = []
        HEX_STRINGS: ClassVar[list[Any]] = [("X'", "'"), ("x'", "'"), ("0x", ""), ("0X", "")]
        # The suffixes of Spark's numbers.
        NUMERIC_LITERALS: ClassVar[dict[str, str]] = {
            "L": "BIGINT",
            "D": "DOUBLE",
            "F": "FLOAT64",
            "S": "SMALLINT",
            "Y": "TINYINT",
        }
        # There are no statements here, hence no commands that swallow the rest of the text.
        COMMANDS: ClassVar[set[Any]] = set()
        KEYWORDS: ClassVar[dict[str, Any]] = {
            **{
                word: token
                for word, token in _BASE_KEYWORDS.items()
                if word not in (*_PLAIN_WORDS, *_OWN_TYPES) and token not in sqlglot_tokens.Tokenizer.COMMANDS
            },
            "DIV": _TokenType.DIV,
            "RLIKE": _TokenType.RLIKE,
            "REGEXP": _TokenType.RLIKE,
            "INT8": _TokenType.TINYINT,
            "INT16": _TokenType.SMALLINT,
            "INT64": _TokenType.BIGINT,
            "FLOAT64": _TokenType.DOUBLE,
            "<=>": _TokenType.NULLSAFE_EQ,
        }

    class Parser(sqlglot_parser.Parser):
        FUNCTIONS: ClassVar[dict[str, Any]] = {}
        FUNCTION_PARSERS: ClassVar[dict[str, Any]] = {
            **{name: _BASE_PARSERS[name] for name in _KEPT_FUNCTION_PARSERS},
            "JSON_VALUE": lambda self: self._parse_json_value(json_path=False),
        }
        NO_PAREN_FUNCTION_PARSERS: ClassVar[dict[str, Any]] = {
            "CASE": sqlglot_parser.Parser.NO_PAREN_FUNCTION_PARSERS["CASE"]
        }
        # Else ``list[1]`` and even ``array(1, 2)[1]`` would silently mean an array of one element.
        ARRAY_CONSTRUCTORS: ClassVar[dict[str, Any]] = {}
        # Only expressions are wanted: never a statement, and an alias only after AS.
        EXPRESSION_PARSERS: ClassVar[dict[Any, Any]] = {
            **sqlglot_parser.Parser.EXPRESSION_PARSERS,
            exp.Alias: lambda self: self._parse_alias(self._parse_assignment(), explicit=True),
        }

        def _parse_struct_types(self, type_required: bool = False) -> Any:
            """Read a field of a STRUCT: behind a colon there may be words of ours, which are no tokens."""
            named = self._next is not None and self._next.token_type == _TokenType.COLON
            return super()._parse_struct_types(type_required and not named)


_DIALECT = Headrace()


#: Trees by text, the oldest first: what ``parse`` has given, and what front ends have.
_trees: dict[str, exp.Expr] = {}
_trees_lock = threading.Lock()
_TREES_MAX = 1024


def text_of(node: exp.Expr) -> str:
    """Return a tree as text. ``parsed`` knows the tree of the text then, and need not parse what was a tree: for front ends."""
    text = node.sql(dialect=Headrace, identify=True)
    if text not in _trees:
        tree = _as_parsed(node)
        if tree is not None:
            _keep(text, tree)
    return text


#: Nodes that their text is read as. Others are written in one way of several: ``a.b`` may be a field or the column of a table.
_READ_AS_WRITTEN = frozenset({
    exp.Column, exp.Identifier, exp.Literal, exp.Null, exp.Boolean, exp.Paren, exp.And, exp.Or, exp.Not, exp.EQ, exp.NEQ, exp.GT, exp.GTE,
    exp.LT, exp.LTE, exp.Add, exp.Sub, exp.Mul, exp.Neg, exp.Is, exp.In, exp.Like, exp.Case, exp.If, exp.Cast, exp.TryCast, exp.DataType,
    exp.Anonymous, exp.Interval, exp.Var,
})  # fmt: skip


def _as_parsed(node: exp.Expr) -> exp.Expr | None:
    """Return a copy of a tree as parsing its text gives it; None where only the parser knows."""
    tree = node.copy()
    for part in tree.walk():
        if part.meta:  # places in another text
            part.meta.clear()
        if type(part) not in _READ_AS_WRITTEN:
            return None
        if isinstance(part, exp.Anonymous):
            name = part.name.upper()
            if name in Headrace.Parser.FUNCTION_PARSERS:
                return None
            part.set("this", name)
        elif isinstance(part, exp.DataType) and part.this is exp.DType.USERDEFINED:
            of_word = _type_of_word(part.args["kind"])
            if part is tree:
                return None
            part.replace(of_word.copy())
    return tree


@lru_cache(maxsize=256)
def _type_of_word(word: str) -> exp.Expr:
    found: exp.Expr = parse(f"CAST(NULL AS {word})").args["to"]
    return found


def parsed(text: str) -> exp.Expr:
    """Return the tree of ``parse``, cached for later calls: it must not be changed. Raises ExpressionError.

    Every expression of a job is looked at several times while the job is built: its type, its columns, what its state is of.
    """
    found = _trees.get(text)
    if found is None:
        found = parse(text)
        _keep(text, found)
    return found


def _keep(text: str, tree: exp.Expr) -> None:
    with _trees_lock:
        _trees[text] = tree
        if len(_trees) > _TREES_MAX:
            del _trees[next(iter(_trees))]


def parse(text: str) -> exp.Expr:
    """Parse one expression (``AS name`` may follow it). Raises ExpressionError with the place of the mistake."""
    if not text.strip():
        raise ExpressionError("the expression is empty", text=text, position=0)
    try:
        parser = _DIALECT.parser(error_level=ErrorLevel.IMMEDIATE)
        nodes = parser.parse_into(exp.Alias, _DIALECT.tokenize(text), text)
    except TokenError as error:
        raise token_error(text, error) from None
    except ParseError as error:
        raise parse_error(text, error) from None
    except SqlglotError as error:
        raise ExpressionError(f"cannot parse: {error}", text=text, position=0, length=len(text)) from error
    except RecursionError:
        raise ExpressionError("the expression is nested too deeply", text=text, position=0) from None
    found = [node for node in nodes if node is not None]
    if len(found) > 1:
        raise ExpressionError("expected one expression, found several", text=text, position=max(0, text.find(";")))
    if not found:
        raise ExpressionError("there is no expression here", text=text, position=0, length=len(text))
    node = found[0]
    assert isinstance(node, exp.Expr)
    return node


def tokens(text: str) -> list[Any]:
    """Return the tokens of a text of this dialect. Raises ExpressionError with the place of the mistake."""
    try:
        return list(_DIALECT.tokenize(text))
    except TokenError as error:
        raise token_error(text, error) from None


def token_error(text: str, error: TokenError) -> ExpressionError:
    for quote, meaning in (("'", "string"), ('"', "quoted name"), ("`", "quoted name")):
        if text.count(quote) % 2:
            return ExpressionError(f"syntax: this {meaning} is not closed", text=text, position=text.rfind(quote))
    reason = str(error).splitlines()[0]
    return ExpressionError(f"syntax: {reason}", text=text, position=0, length=len(text))


def parse_error(text: str, error: ParseError) -> ExpressionError:
    details = error.errors[0] if error.errors else {}
    reason = str(details.get("description") or error).rstrip(".")
    highlight = str(details.get("highlight") or "")
    # sqlglot gives the line and the column of the last character of the token, both counted from 1.
    position = _line_start(text, int(details.get("line") or 1)) + int(details.get("col") or 1) - len(highlight)
    if position < 0 or not text.startswith(highlight, position):
        position = max(0, text.rfind(highlight)) if highlight else len(text)
    hint = None
    if reason.startswith("Invalid expression"):
        reason = f"unexpected {highlight!r}" if highlight else "the expression ends too early"
        if highlight.upper() in Headrace.Tokenizer.KEYWORDS and highlight.isidentifier():
            hint = f'{highlight} is a SQL keyword; a column of that name is written in double quotes: "{highlight}"'
        hint = {"&&": "write AND", "!": "write NOT"}.get(highlight, hint)
    elif reason.startswith("Required keyword: 'this'"):
        reason = f"something is missing before {highlight!r}"
    elif reason.startswith("Required keyword"):
        reason = f"something is missing after {highlight!r}"
    elif found := re.match(r"Expecting (\S+)", reason):
        reason = f"expected {found[1]!r} after {highlight!r}"
    return ExpressionError(f"syntax: {reason}", text=text, position=position, length=len(highlight), hint=hint)


def _line_start(text: str, line: int) -> int:
    start = 0
    for _ in range(line - 1):
        start = text.find("\n", start) + 1
    return start


def span(text: str, node: exp.Expr) -> tuple[int, int]:
    """Return (position, length) of the part of the text that a node came from; the whole text if it is not known."""
    starts: list[int] = []
    ends: list[int] = []
    for part in node.walk():
        meta = part.meta
        if "start" in meta:
            starts.append(meta["start"])
            ends.append(meta["end"] + 1)
    if not starts:
        return 0, len(text)
    start, end = min(starts), max(ends)
    # A call ends with its bracket, which no node records.
    for _ in range(text.count("(", start, end) - text.count(")", start, end)):
        closing = text.find(")", end)
        if closing < 0:
            break
        end = closing + 1
    return start, end - start


def name_span(text: str, node: exp.Expr) -> tuple[int, int]:
    """Return (position, length) of just the name of a function call."""
    meta = node.meta
    if "start" in meta:
        return meta["start"], meta["end"] - meta["start"] + 1
    return span(text, node)


def conjunct_texts(text: str) -> list[str]:
    """Return the parts of the text that AND joins at its top, brackets around the whole taken off."""
    node = parse(text)
    if isinstance(node, exp.Paren):
        stripped = _without_brackets(text)
        return conjunct_texts(stripped) if stripped != text else [text.strip()]
    if not isinstance(node, exp.And):
        return [text.strip()]
    cuts = _cuts(text)
    starts = [0, *(end for _, end in cuts)]
    ends = [*(start for start, _ in cuts), len(text)]
    parts = [text[start:end].strip() for start, end in zip(starts, ends, strict=True)]
    return [found for part in parts for found in conjunct_texts(part)]


def _cuts(text: str) -> list[tuple[int, int]]:
    """Return where the top's ANDs stand. Below an AND there is no bare OR, so each AND outside of brackets counts."""
    cuts = []
    depth = between = 0
    opening = (_TokenType.L_PAREN, _TokenType.L_BRACKET, _TokenType.CASE)
    closing = (_TokenType.R_PAREN, _TokenType.R_BRACKET, _TokenType.END)
    for token in _DIALECT.tokenize(text):
        kind = token.token_type
        depth += (kind in opening) - (kind in closing)
        if depth == 0 and kind == _TokenType.BETWEEN:
            between += 1
        elif depth == 0 and kind == _TokenType.AND:
            if between:
                between -= 1
            else:
                cuts.append((token.start, token.end + 1))
    return cuts


def _without_brackets(text: str) -> str:
    tokens = _DIALECT.tokenize(text)
    first, last = tokens[0], tokens[-1]
    if first.token_type == _TokenType.L_PAREN and last.token_type == _TokenType.R_PAREN:
        return text[first.end + 1 : last.start]
    return text
