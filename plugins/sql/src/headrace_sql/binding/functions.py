"""Functions of Flink and Blink SQL whose name, arguments or result differ from those of headrace-columnar."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import polars as pl
from headrace_columnar.regular_expressions import PatternError, groups
from headrace_columnar.sql_types import entry_types
from sqlglot import exp

from headrace_sql.binding import types
from headrace_sql.binding.trees import call, cast

if TYPE_CHECKING:
    from headrace_sql.binding.expressions import Translator


Builder = Callable[["Translator", exp.Anonymous, list[Any]], exp.Expr]
#: Names that mean the same function under another name.
RENAMED: Mapping[str, str] = {
    "POWER": "power", "CEILING": "ceil", "REGEXP": "regexp_like", "SUBSTR": "substring", "CHARACTER_LENGTH": "length",
    "CHAR_LENGTH": "length", "CURRENT_TIMESTAMP": "current_timestamp", "NOW": "current_timestamp", "PROCTIME": "current_timestamp",
    "CURRENT_ROW_TIMESTAMP": "current_timestamp", "IFNULL": "nvl", "RANDOM": "rand", "TRUNCATE": "truncate",
}  # fmt: skip


def _text(value: str) -> exp.Expr:
    return exp.Literal.string(value)


Local = Callable[[Any], Any]
#: Words that call a function without brackets. They are given what makes an instant a time of the session's zone.
BARE_CALLS: Mapping[str, Callable[[Local], exp.Expr]] = {
    "CURRENT_TIMESTAMP": lambda local: call("current_timestamp"),
    "CURRENT_ROW_TIMESTAMP": lambda local: call("current_timestamp"),
    "CURRENT_DATE": lambda local: cast(local(call("current_timestamp")), "DATE"),
    "LOCALTIMESTAMP": lambda local: cast(local(call("current_timestamp")), "TIMESTAMP_NTZ"),
    "LOCALTIME": lambda local: cast(local(call("current_timestamp")), "TIME"),
    "CURRENT_TIME": lambda local: cast(local(call("current_timestamp")), "TIME"),
}


def precision_of(operand: Any) -> int:
    """Return how many digits of a second a time shows: of a literal those it has, of what gives whole units none, else 3."""
    if isinstance(operand, exp.Cast) and operand.args["to"].expressions:
        return int(operand.args["to"].expressions[0].name)
    if isinstance(operand, exp.Cast) and isinstance(operand.this, exp.Literal):
        found = re.search(r"\.(\d+)", operand.this.name)
        return len(found[1]) if found else 0
    if isinstance(operand, exp.Anonymous) and operand.name.upper() == "TIMESTAMPADD":
        return precision_of(operand.expressions[2])
    if isinstance(operand, exp.Add | exp.Sub | exp.Paren | exp.Floor | exp.Ceil):
        return precision_of(operand.this)
    return 3


def _is_text(self: Translator, made: Any) -> bool:
    return isinstance(self.compile(made).data_type, pl.String | pl.Null)


def _to_timestamp(self: Translator, node: exp.Anonymous, arguments: list[Any]) -> exp.Expr:
    """TO_TIMESTAMP gives a time without zone; Blink's takes milliseconds too."""
    if len(arguments) == 1 and not _is_text(self, arguments[0]):
        kind = self.compile(arguments[0]).data_type
        if kind.is_integer():
            return cast(call("timestamp_millis", arguments[0]), "TIMESTAMP_NTZ")
    if len(arguments) == 1:
        return cast(call("to_timestamp", arguments[0]), "TIMESTAMP_NTZ")
    return cast(call("to_timestamp", *arguments), "TIMESTAMP_NTZ")


def _to_date(self: Translator, node: exp.Anonymous, arguments: list[Any]) -> exp.Expr:
    if len(arguments) == 1 and self.compile(arguments[0]).data_type.is_integer():
        return call("date_add", cast(_text("1970-01-01"), "DATE"), arguments[0])
    return call("to_date", *arguments)


def _date_text(name: str) -> Builder:
    """Blink's DATE_ADD and DATE_SUB give the day as text."""
    return lambda self, node, arguments: cast(call(name, *arguments), "VARCHAR")


def _date_format(self: Translator, node: exp.Anonymous, arguments: list[Any]) -> exp.Expr:
    if len(arguments) == 3:
        return call("date_format", call("to_timestamp", arguments[0], arguments[1]), arguments[2])
    return call("date_format", *arguments)


def _from_unixtime(self: Translator, node: exp.Anonymous, arguments: list[Any]) -> exp.Expr:
    if self.zone == "UTC":
        return call("from_unixtime", *arguments)
    layout = arguments[1] if len(arguments) > 1 else _text("yyyy-MM-dd HH:mm:ss")
    return call("date_format", self.as_local(call("timestamp_seconds", arguments[0])), layout)


def _unix_timestamp(self: Translator, node: exp.Anonymous, arguments: list[Any]) -> exp.Expr:
    """Seconds since 1970 of a text, which is a time of the session's zone."""
    if self.zone == "UTC" or not arguments or not _is_text(self, arguments[0]):
        return call("unix_timestamp", *arguments)
    shown = cast(call("to_timestamp", *arguments), "TIMESTAMP_NTZ")
    return call("unix_timestamp", self.for_cast(shown, "TIMESTAMP"))


def _now(self: Translator, node: exp.Anonymous, arguments: list[Any]) -> exp.Expr:
    """NOW(n) of Blink: seconds since 1970, n later."""
    now = call("unix_timestamp")
    return exp.Add(this=now, expression=arguments[0]) if arguments else call("current_timestamp")


def _padding(name: str) -> Builder:
    """LPAD and RPAD of Flink: NULL when there is nothing to pad with."""

    def build(self: Translator, node: exp.Anonymous, arguments: list[Any]) -> exp.Expr:
        if len(arguments) < 3:
            return call(name, *arguments)
        empty = exp.EQ(this=arguments[2], expression=_text(""))
        made = call(name, *arguments)
        return exp.Case(ifs=[exp.If(this=empty, true=exp.Null())], default=made)

    return build


def _split_index(self: Translator, node: exp.Anonymous, arguments: list[Any]) -> exp.Expr:
    """SPLIT_INDEX of an empty text is NULL in Flink; a number as separator is a character's code."""
    if len(arguments) == 3 and self.compile(arguments[1]).data_type.is_integer():
        arguments = [arguments[0], call("chr", arguments[1]), arguments[2]]
    made = call("split_index", *arguments)
    empty = exp.EQ(this=arguments[0].copy(), expression=_text(""))
    return exp.Case(ifs=[exp.If(this=empty, true=exp.Null())], default=made)


def _json_path(node: Any) -> tuple[Any, bool]:
    """Return the path without its mode, and whether the mode is lax. Strict is the default."""
    if isinstance(node, exp.Literal) and node.is_string:
        text = node.name.strip()
        mode, _, rest = text.partition(" ")
        if mode.lower() in ("lax", "strict"):
            made = exp.Literal.string(rest.strip())
            made.meta.update(node.meta)
            return made, mode.lower() == "lax"
    return node, False


def json_value(self: Translator, node: exp.JSONValue) -> exp.Expr:
    """JSON_VALUE with Flink's modes: strict by default, where a path that leads nowhere is an error, not empty."""

    document = self.translate(node.this)
    path = node.args["path"]
    conditions = node.args.get("on_condition")
    if conditions is None:
        made = call("json_value", document, path)
    else:
        defaults = []
        for key in ("empty", "error"):
            given = conditions.args.get(key)
            if isinstance(given, str) and not given.upper().startswith("NULL"):
                raise self.error(
                    node, f"JSON_VALUE: {given} is not supported", "use NULL or DEFAULT … ON EMPTY / ON ERROR"
                )
            defaults.append(self.translate(given) if isinstance(given, exp.Expr) else exp.Null())
        made = call("json_value_or", document, path, *defaults)
    returning = node.args.get("returning")
    if not returning:
        return made
    target = exp.DataType(this=exp.DType.USERDEFINED, kind=types.cast_word(returning, self.text))
    return exp.TryCast(this=made, to=target, safe=True)


def _json_function(name: str) -> Builder:
    def build(self: Translator, node: exp.Anonymous, arguments: list[Any]) -> exp.Expr:
        path, lax = _json_path(arguments[1])
        if name == "json_exists":
            document = arguments[0]
            found = call("json_exists", document, path)
            if lax:
                return found
            known = call("coalesce", found, exp.false())
            value = exp.Is(this=call("json_value", document.copy(), path.copy()), expression=exp.Null())
            inner = exp.Is(this=call("json_query", document.copy(), path.copy()), expression=exp.Null())
            there = exp.Paren(this=exp.Or(this=exp.Not(this=value), expression=exp.Not(this=inner)))
            unknown = exp.If(this=exp.Is(this=document.copy(), expression=exp.Null()), true=exp.Null())
            return exp.Case(ifs=[unknown], default=exp.And(this=known, expression=there))
        if len(arguments) > 2:
            wrapper = arguments[2].name
            if "UNCONDITIONAL" in wrapper or wrapper in ("WITH ARRAY WRAPPER", "WITH WRAPPER"):
                return call("concat", _text("["), call("json_query", arguments[0], path), _text("]"))
            if "CONDITIONAL" in wrapper:
                nested = call("json_query", arguments[0], path)
                simple = call("json_string_at", arguments[0].copy(), path.copy())
                return call("coalesce", nested, call("concat", _text("["), simple, _text("]")))
        return call(name, arguments[0], path)

    return build


def is_json(operand: Any, kind: str) -> exp.Expr:
    """``x IS JSON [VALUE | OBJECT | ARRAY | SCALAR]``."""
    valid = call("json_valid", operand)
    first = call("left", call("ltrim", operand.copy()), exp.Literal.number(1))
    tests = {
        "OBJECT": exp.EQ(this=first, expression=_text("{")),
        "ARRAY": exp.EQ(this=first, expression=_text("[")),
        "SCALAR": exp.Not(this=exp.In(this=first, expressions=[_text("{"), _text("[")])),
    }
    test = tests.get(kind)
    return exp.Paren(this=valid if test is None else exp.And(this=valid, expression=test))


def _regular(name: str) -> Builder:
    """Regular expressions that are wrong match nothing in Flink: REGEXP is false, the others are NULL."""

    def build(self: Translator, node: exp.Anonymous, arguments: list[Any]) -> exp.Expr:
        pattern = arguments[1] if len(arguments) > 1 else None
        if isinstance(pattern, exp.Literal) and pattern.is_string:
            count = _groups(pattern.name)
            wanted = arguments[2] if name == "regexp_extract" and len(arguments) > 2 else None
            beyond = isinstance(wanted, exp.Literal) and count is not None and int(wanted.name) > count
            if count is None or beyond:
                if name != "regexp_like":
                    return cast(exp.Null(), "VARCHAR")
                unknown = exp.Is(this=arguments[0], expression=exp.Null())
                return exp.Case(ifs=[exp.If(this=unknown, true=exp.Null())], default=exp.false())
        return call(name, *arguments)

    return build


def _groups(pattern: str) -> int | None:
    """Return how many groups a pattern has, or None when neither engine takes it."""
    try:
        return groups(pattern)
    except PatternError:
        return None


def bracket(self: Translator, node: exp.Bracket) -> exp.Expr:
    """``array[1]``, ``row['field']``, ``map['key']``, and the constructors ``ARRAY[…]``, ``MAP[…]``."""
    inner = node.this
    word = inner.name.upper() if isinstance(inner, exp.Column) and len(inner.parts) == 1 else ""
    if word == "MAP" and not self.relation.find(inner.name):
        return call("map", *(self.translate(each) for each in node.expressions))
    if isinstance(inner, exp.Anonymous) and inner.name.upper() == "STR_TO_MAP" and len(node.expressions) == 1:
        arguments = [self.translate(each) for each in inner.expressions]
        between = arguments[1] if len(arguments) > 1 else _text(",")
        pair = arguments[2] if len(arguments) > 2 else _text("=")
        return call("keyvalue", arguments[0], between, pair, self.translate(node.expressions[0]))
    made = self.rebuilt(node)
    if len(node.expressions) == 1 and word != "ARRAY":
        whole = self.compile(made.this).data_type
        entries = entry_types(whole)
        index = self.compile(made.expressions[0]).data_type
        if entries is not None and (entries[0].is_integer() or not index.is_integer()):
            found = call("map_value", made.this, made.expressions[0])
            found.meta.update(node.meta)
            return found
    return made


def _row(self: Translator, node: exp.Anonymous, arguments: list[Any]) -> exp.Expr:
    named = [part for index, each in enumerate(arguments) for part in (_text(f"EXPR${index}"), each)]
    return call("named_struct", *named)


def _if(self: Translator, node: exp.Anonymous, arguments: list[Any]) -> exp.Expr:
    return call("if", *arguments)


def _sign(self: Translator, node: exp.Anonymous, arguments: list[Any]) -> exp.Expr:
    """SIGN has the type of its argument; of a decimal without a digit before the point, one that can hold 1."""

    kind: Any = self.compile(arguments[0]).data_type if len(arguments) == 1 else None
    if kind is not None and kind.is_decimal() and kind.precision == kind.scale:
        kind = pl.Decimal(min(38, kind.precision + 1), min(37, kind.scale))
    word = types.word_for(kind) if kind is not None else None
    made = call("sign", *arguments)
    return made if word is None else cast(made, word)


def _truncate(self: Translator, node: exp.Anonymous, arguments: list[Any]) -> exp.Expr:
    """TRUNCATE of a decimal has as many digits behind the point as it leaves."""
    made = call("truncate", *arguments)
    digits = arguments[1] if len(arguments) > 1 else exp.Literal.number(0)
    kind: Any = self.compile(arguments[0]).data_type
    if (
        kind.is_decimal()
        and isinstance(digits, exp.Literal)
        and digits.name.isdigit()
        and int(digits.name) < kind.scale
    ):
        return cast(made, f"DECIMAL({kind.precision - kind.scale + int(digits.name)}, {digits.name})")
    return made


def _element(self: Translator, node: exp.Anonymous, arguments: list[Any]) -> exp.Expr:
    """ELEMENT: the only element of an array."""
    return call("element_at", arguments[0], exp.Literal.number(1))


def _variant(self: Translator, node: exp.Anonymous, arguments: list[Any]) -> exp.Expr:
    raise self.error(
        node,
        f"{node.name.upper()}: there is no type VARIANT, JSON stays text",
        "JSON_VALUE, JSON_QUERY and JSON_EXISTS read it",
    )


BUILDERS: dict[str, Builder] = {
    "PARSE_JSON": _variant, "TRY_PARSE_JSON": _variant,
    "SIGN": _sign, "TRUNCATE": _truncate, "ELEMENT": _element,
    "TO_TIMESTAMP": _to_timestamp, "TO_DATE": _to_date, "DATE_ADD": _date_text("date_add"), "DATE_SUB": _date_text("date_sub"),
    "DATE_FORMAT": _date_format, "NOW": _now,
    "FROM_UNIXTIME": _from_unixtime, "UNIX_TIMESTAMP": _unix_timestamp, "LPAD": _padding("lpad"), "RPAD": _padding("rpad"),
    "SPLIT_INDEX": _split_index, "JSON_QUERY": _json_function("json_query"), "JSON_EXISTS": _json_function("json_exists"),
    "IF": _if, "ROW": _row, "REGEXP": _regular("regexp_like"), "REGEXP_EXTRACT": _regular("regexp_extract"),
    "REGEXP_REPLACE": _regular("regexp_replace"),
}  # fmt: skip
