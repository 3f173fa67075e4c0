"""Functions of text. Positions are counted from 1, in characters (Unicode code points)."""

from __future__ import annotations

import functools
from typing import Any

import polars as pl
from headrace_columnar.edit_distance import edit_distance
from headrace_columnar.registry import Call, function
from headrace_columnar.rowwise import by_series, map_rows, map_values
from headrace_columnar.sql_types import Typed

#: Functions make no longer text than this: a row must not be able to ask for all the memory there is.
LONGEST = 100_000
#: Where a row gives both the text that is inserted and the text it is inserted into: the product of their lengths,
#: because the result can become that long.
LARGEST_PRODUCT = 100_000_000


@function(
    "lower",
    "lcase",
    signature="text string -> string",
    summary="The text in lower case, by Unicode's rules.",
    examples=[("lower('AbC')", "abc"), ("lower('ÄÖ')", "äö")],
)
def lower(call: Call) -> pl.Expr:
    return call[0].str.to_lowercase()


@function(
    "upper",
    "ucase",
    signature="text string -> string",
    summary="The text in upper case, by Unicode's rules.",
    examples=[("upper('AbC')", "ABC"), ("upper('straße')", "STRASSE")],
)
def upper(call: Call) -> pl.Expr:
    return call[0].str.to_uppercase()


@function(
    "initcap",
    signature="text string -> string",
    summary="Each word with a first capital, the rest small; words are runs of letters and digits.",
    examples=[("initcap('aADvbn')", "Aadvbn"), ("initcap('hello big-WORLD')", "Hello Big-World")],
)
def initcap(call: Call) -> pl.Expr:
    return map_values(call[0], _initcap, pl.String())


def _initcap(text: str) -> str:
    out = []
    inside = False
    for character in text:
        out.append(character.lower() if inside else character.upper())
        inside = character.isalnum()
    return "".join(out)


@function(
    "length",
    "char_length",
    "character_length",
    "len",
    signature="text string -> int64",
    summary="The number of characters.",
    examples=[("length('231ee')", 5), ("char_length('李🙂')", 2)],
)
def length(call: Call) -> pl.Expr:
    return call[0].str.len_chars().cast(pl.Int64)


@function(
    "octet_length",
    signature="data bytes -> int64",
    summary="The number of bytes (of UTF-8, for text).",
    examples=[("octet_length('é')", 2), ("octet_length(X'010203')", 3)],
)
def octet_length(call: Call) -> pl.Expr:
    return call[0].bin.size().cast(pl.Int64)


@function(
    "bit_length",
    signature="data bytes -> int64",
    summary="The number of bits (of UTF-8, for text).",
    examples=[("bit_length('ab')", 16)],
)
def bit_length(call: Call) -> pl.Expr:
    return call[0].bin.size().cast(pl.Int64) * 8


@function(
    "concat",
    signature="value text... -> string",
    summary="The texts joined (also written a || b); NULL if any is NULL.",
    examples=[("concat('Hello', 'My', 'World')", "HelloMyWorld"), ("concat('a', 1)", "a1"), ("'a' || NULL", None)],
)
def concat(call: Call) -> pl.Expr:
    return pl.concat_str(call.expressions())


@function(
    "concat_ws",
    signature=["separator string, values array<string> -> string", "separator string, value text... -> string"],
    summary="The texts joined with a separator; NULL texts are left out, a NULL separator gives NULL.",
    examples=[("concat_ws('|', 'a', NULL, 'b')", "a|b"), ("concat_ws(NULL, 'a', 'b')", None)],
    answers_null=True,
)
def concat_ws(call: Call) -> pl.Expr:
    if isinstance(call.arguments[1].data_type, pl.List):
        return call[1].list.join(call[0], ignore_nulls=True)
    if call.is_constant(0) and call.constant(0) is not None:
        return pl.concat_str(call.expressions()[1:], separator=call.constant(0), ignore_nulls=True)
    return pl.concat_list(call.expressions()[1:]).list.join(call[0], ignore_nulls=True)


@function(
    "substring",
    "substr",
    "mid",
    signature="text string, start integer, [length integer] -> string",
    summary="The part from ``start`` on (from the end if negative), at most ``length`` characters. "
    "Also written SUBSTRING(text FROM start FOR length).",
    examples=[
        ("substring('k1=v1;k2=v2', 2)", "1=v1;k2=v2"),
        ("substring('k1=v1;k2=v2', -2, 1)", "v"),
        ("substring('k1=v1' FROM 4 FOR 2)", "v1"),
        ("substring('k1=v1', 0)", "k1=v1"),
        ("substring('k1=v1', -22)", ""),
        ("substring('k1=v1', 22)", ""),
    ],
)
def substring(call: Call) -> pl.Expr:
    start, size = call.constant(1), call.constant(2) if len(call) == 3 else None
    size_known = len(call) == 2 or isinstance(size, int)
    if isinstance(start, int) and start >= 0 and size_known:
        return call[0].str.slice(max(start, 1) - 1, None if size is None else max(size, 0))
    return by_series(call.expressions(), _substring, pl.String())


def _substring(texts: pl.Series, starts: pl.Series, sizes: pl.Series | None = None) -> pl.Series:
    text, start = pl.col("text"), pl.col("start")
    frame = pl.DataFrame({"text": texts, "start": starts}).with_columns(
        pl.when(start > 0).then(start - 1).when(start == 0).then(0).otherwise(text.str.len_chars().cast(pl.Int64) + start)
        .alias("offset"),
        (pl.lit(None, dtype=pl.Int64) if sizes is None else sizes.clip(lower_bound=0)).alias("size"),
    )  # fmt: skip
    offset = pl.col("offset")
    cut = text.str.slice(pl.max_horizontal(offset, pl.lit(0)), pl.col("size") if sizes is not None else None)
    known = text.is_not_null() & start.is_not_null()
    if sizes is not None:
        known = known & pl.col("size").is_not_null()
    return frame.select(pl.when(known).then(pl.when(offset >= 0).then(cut).otherwise(pl.lit("")))).to_series()


@function(
    "left",
    signature="text string, count integer -> string",
    summary="The first characters.",
    examples=[("left('abcde', 2)", "ab"), ("left('abc', -1)", "")],
)
def left(call: Call) -> pl.Expr:
    return by_series(call.expressions(), _first, pl.String())


def _first(texts: pl.Series, counts: pl.Series) -> pl.Series:
    return _end_of(texts, counts, pl.col("text").str.head(pl.col("count")))


@function(
    "right",
    signature="text string, count integer -> string",
    summary="The last characters.",
    examples=[("right('abcde', 2)", "de"), ("right('abc', 5)", "abc"), ("right('abc', 0)", "")],
)
def right(call: Call) -> pl.Expr:
    return by_series(call.expressions(), _last, pl.String())


def _last(texts: pl.Series, counts: pl.Series) -> pl.Series:
    return _end_of(texts, counts, pl.col("text").str.tail(pl.col("count")))


def _end_of(texts: pl.Series, counts: pl.Series, taken: pl.Expr) -> pl.Series:
    # polars takes a negative count as "all but so many"; here it is none.
    frame = pl.DataFrame({"text": texts, "count": counts.clip(lower_bound=0)})
    known = pl.col("text").is_not_null() & pl.col("count").is_not_null()
    return frame.select(pl.when(known).then(taken)).to_series()


def _strip(call: Call, side: str) -> pl.Expr:
    method = {
        "both": call[0].str.strip_chars,
        "start": call[0].str.strip_chars_start,
        "end": call[0].str.strip_chars_end,
    }
    if len(call) == 2:
        return pl.when(call[1].is_not_null()).then(method[side](call[1]))
    return method[side](" ")


@function(
    "btrim",
    "trim",
    signature="text string, [characters string] -> string",
    summary="The text without spaces (or the given characters) at both ends. Also TRIM(BOTH 'x' FROM text).",
    examples=[("trim('  a ')", "a"), ("trim(BOTH 'x' FROM 'xxaxx')", "a"), ("btrim('xyaxy', 'yx')", "a")],
)
def btrim(call: Call) -> pl.Expr:
    return _strip(call, "both")


@function(
    "ltrim",
    signature="text string, [characters string] -> string",
    summary="The text without spaces (or the given characters) at its start.",
    examples=[("ltrim('  a ')", "a "), ("trim(LEADING 'x' FROM 'xxaxx')", "axx")],
)
def ltrim(call: Call) -> pl.Expr:
    return _strip(call, "start")


@function(
    "rtrim",
    signature="text string, [characters string] -> string",
    summary="The text without spaces (or the given characters) at its end.",
    examples=[("rtrim('  a ')", "  a"), ("trim(TRAILING 'x' FROM 'xxaxx')", "xxa")],
)
def rtrim(call: Call) -> pl.Expr:
    return _strip(call, "end")


def _pad(call: Call, *, front: bool) -> pl.Expr:
    padding = call[2] if len(call) == 3 else pl.lit(" ")
    return map_rows([call[0], call[1], padding], functools.partial(_padded, front), pl.String())


def _padded(front: bool, text: str, size: int, padding: str) -> str | None:
    if size < 0 or not padding:
        return None
    if size > LONGEST:
        return None
    missing = size - len(text)
    if missing <= 0:
        return text[:size]
    filling = (padding * (missing // len(padding) + 1))[:missing]
    return filling + text if front else text + filling


@function(
    "lpad",
    signature="text string, size integer, [padding string] -> string",
    summary="The text filled up (or cut) to ``size`` characters at its start; "
    "NULL for a negative size, one above 100,000, or no padding.",
    examples=[
        ("lpad('HelloWorld', 15, 'John')", "JohnJHelloWorld"),
        ("lpad('John', 2, 'C')", "Jo"),
        ("lpad('a', 3)", "  a"),
    ],
)
def lpad(call: Call) -> pl.Expr:
    return _pad(call, front=True)


@function(
    "rpad",
    signature="text string, size integer, [padding string] -> string",
    summary="The text filled up (or cut) to ``size`` characters at its end; "
    "NULL for a negative size, one above 100,000, or no padding.",
    examples=[("rpad('HelloWorld', 15, 'John')", "HelloWorldJohnJ"), ("rpad('', 0, '')", None)],
)
def rpad(call: Call) -> pl.Expr:
    return _pad(call, front=False)


@function(
    "repeat",
    signature="text string, count integer -> string",
    summary="The text repeated; NULL if the result would have more than 100,000 characters.",
    examples=[("repeat('J', 3)", "JJJ"), ("repeat('Hello', -9)", "")],
)
def repeat(call: Call) -> pl.Expr:
    return map_rows(call.expressions(), _repeated, pl.String())


def _repeated(text: str, count: int) -> str | None:
    return text * count if count * len(text) <= LONGEST else None


@function(
    "space",
    signature="count integer -> string",
    summary="So many spaces.",
    examples=[("space(2)", "  ")],
)
def space(call: Call) -> pl.Expr:
    return map_values(call[0], functools.partial(_repeated, " "), pl.String())


@function(
    "reverse",
    signature=["text string -> string", "values array -> ?"],
    summary="The text, or the array, backwards.",
    examples=[("reverse('iPhoneX')", "XenohPi"), ("reverse(array(1, 2))", [2, 1])],
)
def reverse(call: Call) -> Typed:
    argument = call.arguments[0]
    if isinstance(argument.data_type, pl.List):
        return Typed(call[0].list.reverse(), argument.data_type)
    return Typed(map_values(call[0], _reversed, pl.String()), pl.String())


def _reversed(text: str) -> str:
    return text[::-1]


@function(
    "replace",
    signature="text string, search string, [instead string] -> string",
    summary="The text with every occurrence of ``search`` replaced by ``instead`` (removed, with two arguments). If "
    "``instead`` is not a constant: NULL if the product of its length and the text's length is above 100 million.",
    examples=[
        ("replace('abcabc', 'b', 'X')", "aXcaXc"),
        ("replace('abc', 'b')", "ac"),
        ("replace('abc', '', 'x')", "abc"),
    ],
)
def replace(call: Call) -> pl.Expr:
    instead = call[2] if len(call) == 3 else pl.lit("")
    if call.is_constant(1) and call.constant(1):
        if len(call) == 2 or call.is_constant(2):
            return call[0].str.replace_all(call[1], instead, literal=True)
        fits = call[0].str.len_bytes().cast(pl.Int64) * instead.str.len_bytes().cast(pl.Int64) <= LARGEST_PRODUCT
        made = call[0].str.replace_all(call[1], pl.when(fits).then(instead).otherwise(pl.lit("")), literal=True)
        return pl.when(fits).then(made)
    return map_rows([call[0], call[1], instead], _replaced, pl.String())


def _replaced(text: str, search: str, instead: str) -> str | None:
    if len(text) * len(instead) > LARGEST_PRODUCT:
        return None
    return text.replace(search, instead) if search else text


@function(
    "translate",
    signature="text string, from string, to string -> string",
    summary="Each character of ``from`` replaced by the one at its place in ``to``, or removed if there is none.",
    examples=[("translate('AaBbCc', 'abc', '12')", "A1B2C")],
)
def translate(call: Call) -> pl.Expr:
    return map_rows(call.expressions(), _translated, pl.String())


def _translated(text: str, source: str, target: str) -> str:
    table: dict[int, str | None] = {}
    for place, character in enumerate(source):
        table.setdefault(ord(character), target[place] if place < len(target) else None)
    return text.translate(table)


@function(
    "overlay",
    signature="text string, instead string, start integer, [length integer] -> string",
    summary="The text with a part replaced. Also written OVERLAY(text PLACING instead FROM start FOR length).",
    examples=[
        ("overlay('Spark SQL' PLACING '_' FROM 6)", "Spark_SQL"),
        ("overlay('Spark SQL', 'CORE', 7, 3)", "Spark CORE"),
    ],
)
def overlay(call: Call) -> pl.Expr:
    if len(call) == 3:
        return map_rows(call.expressions(), _overlaid, pl.String())
    return map_rows(call.expressions(), _overlaid, pl.String())


def _overlaid(text: str, instead: str, start: int, size: int | None = None) -> str:
    if start < 1 or start > len(text):
        return text
    end = start - 1 + (len(instead) if size is None else max(size, 0))
    return text[: start - 1] + instead + text[end:]


@function(
    "locate",
    signature="search string, text string, [start integer] -> int64",
    summary="The place of the first occurrence at or behind ``start``, 0 if none. Also POSITION(search IN text).",
    examples=[
        ("locate('b', 'abcb')", 2),
        ("position('b' IN 'abcb')", 2),
        ("locate('b', 'abcb', 3)", 4),
        ("locate('x', 'a')", 0),
    ],
)
def locate(call: Call) -> pl.Expr:
    return map_rows([call[1], call[0], *call.expressions()[2:]], _located, pl.Int64())


@function(
    "position",
    signature="search string, text string -> int64",
    summary="The place of the first occurrence, 0 if there is none.",
    examples=[("position('b', 'abcb')", 2)],
)
def position(call: Call) -> pl.Expr:
    return map_rows([call[1], call[0]], _located, pl.Int64())


@function(
    "instr",
    "charindex",
    signature="text string, search string -> int64",
    summary="The place of the first occurrence of ``search``, 0 if there is none.",
    examples=[("instr('abcb', 'b')", 2)],
)
def instr(call: Call) -> pl.Expr:
    return map_rows(call.expressions(), _located, pl.Int64())


def _located(text: str, search: str, start: int = 1) -> int:
    return text.find(search, start - 1) + 1 if start > 0 else 0


@function(
    "startswith",
    "starts_with",
    signature="text string, prefix string -> boolean",
    summary="Whether the text starts with the prefix.",
    examples=[("startswith('headrace', 'head')", True)],
)
def startswith(call: Call) -> pl.Expr:
    return call[0].str.starts_with(call[1])


@function(
    "endswith",
    "ends_with",
    signature="text string, suffix string -> boolean",
    summary="Whether the text ends with the suffix.",
    examples=[("endswith('headrace', 'race')", True)],
)
def endswith(call: Call) -> pl.Expr:
    return call[0].str.ends_with(call[1])


@function(
    "contains",
    signature="text string, search string -> boolean",
    summary="Whether the text contains the other one.",
    examples=[("contains('headrace', 'dra')", True), ("contains('a.c', '.')", True)],
)
def contains(call: Call) -> pl.Expr:
    return call[0].str.contains(call[1], literal=True)


@function(
    "split",
    signature="text string, separator string -> array<string>",
    summary="The pieces between occurrences of a separator, which is plain text (in Spark: a regular expression).",
    examples=[("split('a,b,,c', ',')", ["a", "b", "", "c"])],
)
def split(call: Call) -> pl.Expr:
    if call.is_constant(1) and call.constant(1):
        return call[0].str.split(call.constant(1))
    return map_rows(call.expressions(), _pieces, pl.List(pl.String()))


def _pieces(text: str, separator: str) -> list[str]:
    return text.split(separator) if separator else list(text)


@function(
    "split_index",
    signature="text string, separator string, index integer -> string",
    summary="The piece with that number, counted from 0; NULL if there is none (as in Flink).",
    examples=[
        ("split_index('Jack,John,Mary', ',', 2)", "Mary"),
        ("split_index('Jack', ',', 3)", None),
        ("split_index('a,,b', ',', 1)", ""),
    ],
)
def split_index(call: Call) -> pl.Expr:
    index = call.constant(2)
    if call.is_constant(1) and call.constant(1) and call.is_constant(2) and index is not None and index >= 0:
        # polars splits a text once for several pieces of it.
        piece = call[0].str.split(call.constant(1)).list.get(index, null_on_oob=True)
        return pl.when(call[0] != "").then(piece)
    return map_rows(call.expressions(), _piece_from_zero, pl.String())


def _piece_from_zero(text: str, separator: str, index: int) -> str | None:
    pieces = _pieces(text, separator) if text else []
    return pieces[index] if 0 <= index < len(pieces) else None


@function(
    "split_part",
    signature="text string, separator string, index integer -> string",
    summary="The piece with that number, counted from 1 (from the end if negative); empty if there is none (as in Spark).",
    examples=[
        ("split_part('a.b.c', '.', 2)", "b"),
        ("split_part('a.b.c', '.', -1)", "c"),
        ("split_part('a', '.', 5)", ""),
    ],
)
def split_part(call: Call) -> pl.Expr:
    return map_rows(call.expressions(), _piece_from_one, pl.String())


def _piece_from_one(text: str, separator: str, index: int) -> str | None:
    pieces = text.split(separator) if separator else [text]
    if index == 0:
        return None
    place = index - 1 if index > 0 else len(pieces) + index
    return pieces[place] if 0 <= place < len(pieces) else ""


@function(
    "substring_index",
    signature="text string, separator string, count integer -> string",
    summary="The part before the n-th separator; for a negative n, the part after the n-th separator from the end.",
    examples=[
        ("substring_index('www.apache.org', '.', 2)", "www.apache"),
        ("substring_index('www.apache.org', '.', -1)", "org"),
    ],
)
def substring_index(call: Call) -> pl.Expr:
    return map_rows(call.expressions(), _until, pl.String())


def _until(text: str, separator: str, count: int) -> str:
    if not separator or count == 0:
        return ""
    pieces = text.split(separator)
    return separator.join(pieces[:count] if count > 0 else pieces[count:])


@function(
    "keyvalue",
    signature="text string, between_pairs string, between_key_and_value string, key string -> string",
    summary="The value of a key in text like ``a=1;b=2``; NULL if there is none (as in Blink).",
    examples=[("keyvalue('k1=v1;k2=v2', ';', '=', 'k2')", "v2"), ("keyvalue('k1:v1abck2:v2', 'abc', ':', 'k2')", "v2")],
)
def keyvalue(call: Call) -> pl.Expr:
    return map_rows(call.expressions(), _value_of, pl.String())


def _value_of(text: str, between_pairs: str, between: str, key: str) -> str | None:
    if not between_pairs or not between:
        return None
    for pair in text.split(between_pairs):
        name, found, value = pair.partition(between)
        if found and name == key:
            return value
    return None


@function(
    "elt",
    signature="index integer, value string... -> string",
    summary="The index-th of the texts that follow, counted from 1; NULL if there is none.",
    examples=[("elt(2, 'a', 'b')", "b"), ("elt(3, 'a', 'b')", None)],
    answers_null=True,
)
def elt(call: Call) -> pl.Expr:
    chosen: Any = pl
    for place, value in enumerate(call.expressions()[1:], start=1):
        chosen = chosen.when(call[0] == place).then(value)
    made: pl.Expr = chosen.otherwise(None)
    return made


@function(
    "find_in_set",
    signature="search string, list string -> int64",
    summary="The place of a text in a list separated by commas, 0 if it is not there.",
    examples=[("find_in_set('b', 'a,b,c')", 2), ("find_in_set('x', 'a,b,c')", 0)],
)
def find_in_set(call: Call) -> pl.Expr:
    return map_rows(call.expressions(), _place_in_list, pl.Int64())


def _place_in_list(search: str, listed: str) -> int:
    pieces = listed.split(",")
    return pieces.index(search) + 1 if search in pieces else 0


@function(
    "levenshtein",
    signature="left string, right string -> int64",
    summary="The least number of inserted, removed and changed characters that makes the texts equal; "
    "NULL for a text of more than 20,000 characters.",
    examples=[("levenshtein('kitten', 'sitting')", 3)],
)
def levenshtein(call: Call) -> pl.Expr:
    return map_rows(call.expressions(), edit_distance, pl.Int64())
