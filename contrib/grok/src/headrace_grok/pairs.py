"""Splits texts of ``key=value`` pairs into columns, a batch at once: logfmt, and the extensions of CEF and LEEF."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from headrace_grok.values import shown

#: What writers of logfmt escape within quotes: those of Go also what cannot be seen, such as an escape of a terminal.
_LOGFMT_ESCAPES = {
    "\\\\": "\\", '\\"': '"', "\\n": "\n", "\\t": "\t", "\\r": "\r", "\\a": "\a", "\\b": "\b", "\\f": "\f", "\\v": "\v", "\\'": "'",
}  # fmt: skip
_CODED = re.compile(r"\\(?:x([0-7][0-9A-Fa-f])|u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})|(.))", re.DOTALL)
_CEF_ESCAPES = {"\\\\": "\\", "\\=": "=", "\\|": "|", "\\n": "\n", "\\r": "\r"}
_LAST_CHARACTER, _SURROGATES = 0x10FFFF, (0xD800, 0xDFFF)
_CEF_KEY = r"^[\w.\[\]-]+="
_NULL = pl.Series([None], dtype=pl.String)


@dataclass(frozen=True, slots=True)
class Pairs:
    """The pairs of many texts, in their order: the text that each is from, its key and its value."""

    rows: NDArray[np.int64]
    keys: pl.Series
    values: pl.Series

    def column(self, name: str, count: int) -> pl.Series:
        """Return the values of a key for ``count`` texts. If a text has the key several times, its last value
        counts.
        """
        these = np.flatnonzero((self.keys == name).to_numpy())
        places = np.full(count, len(self.values), dtype=np.int64)
        places[self.rows[these]] = these
        return pl.concat([self.values, _NULL], rechunk=True)[places].alias(name)


class QuotedPairs:
    """Pairs whose values may be in double quotes, with backslashes within them. A key without a value has ``true``."""

    def __init__(self, pair_separator: str = " ", key_separator: str = "=") -> None:
        self._key_separator = key_separator
        end = r"\s" if pair_separator == " " else re.escape(pair_separator)
        between = end if pair_separator == " " else end + r"\s"
        key = rf'[^{between}"{re.escape(key_separator)}]+'
        self._pair = rf'{key}(?:{re.escape(key_separator)}(?:"(?:[^"\\]|\\.)*"|[^{end}"]*))?'
        self._begin = rf"^[{between}]*(?:{self._pair}(?:[{between}]+|$))*"

    def faults(self, texts: pl.Series) -> tuple[NDArray[np.int64], list[str]]:
        """Return the texts that are not made of pairs, and why."""
        fits = texts.str.contains(f"{self._begin}\\z")
        rows = np.flatnonzero(~fits.to_numpy())
        begins = texts[rows].str.extract(f"({self._begin})", 1).fill_null("").to_list()
        reasons = [
            f"no pair of key and value at {shown(text[len(begin) :])}"
            for text, begin in zip(texts[rows], begins, strict=True)
        ]
        return rows, reasons

    def pairs(self, texts: pl.Series) -> Pairs:
        """Return the pairs of texts that have no fault."""
        listed = texts.str.extract_all(self._pair)
        rows = np.repeat(np.arange(len(texts)), listed.list.len().to_numpy())
        parts = (
            listed.list.explode(keep_nulls=False, empty_as_null=False)
            .str.splitn(self._key_separator, 2)
            .struct.unnest()
        )
        written = parts["field_1"]
        quoted = written.str.starts_with('"').fill_null(False)
        inner = _from_quotes(written.str.strip_prefix('"').str.strip_suffix('"'))
        written = written.str.strip_chars()
        plain = written.set(written == "", None).set(written.is_null(), "true")
        return Pairs(rows, parts["field_0"], inner.zip_with(quoted, plain))


def _from_quotes(texts: pl.Series) -> pl.Series:
    """Return values of logfmt without their escapes."""
    if not texts.str.contains(r"\\[xuU]").any():
        return _unescaped(texts, _LOGFMT_ESCAPES)
    return pl.Series(
        texts.name,
        [text if text is None or "\\" not in text else _CODED.sub(_character, text) for text in texts],
        pl.String,
    )


def _character(found: re.Match[str]) -> str:
    """Return the character of an escape; the escape itself where there is none, as for a byte that is no text."""
    code = found[1] or found[2] or found[3]
    if code is None:
        return _LOGFMT_ESCAPES.get(found[0], found[0])
    number = int(code, 16)
    is_character = number <= _LAST_CHARACTER and not _SURROGATES[0] <= number <= _SURROGATES[1]
    return chr(number) if is_character else found[0]


def cef_faults(texts: pl.Series) -> tuple[NDArray[np.int64], list[str]]:
    """Return the extensions of CEF that do not begin with a key, and why."""
    stripped = texts.str.strip_chars(" ")
    wrong = (stripped != "") & ~stripped.str.contains(_CEF_KEY)
    rows = np.flatnonzero(wrong.to_numpy())
    return rows, [f"the extension begins with no key: {shown(text)}" for text in texts[rows]]


def cef_pairs(texts: pl.Series) -> Pairs:
    """Return the pairs of extensions of CEF: a value goes to the blank before the next key, and may hold blanks itself."""
    words = texts.str.strip_chars(" ").str.split(" ")
    rows = np.repeat(np.arange(len(texts)), words.list.len().to_numpy())
    frame = pl.DataFrame({"row": rows, "word": words.list.explode(keep_nulls=False, empty_as_null=False)})
    begins = frame["word"].str.contains(_CEF_KEY)
    joined = (
        frame.with_columns(pair=begins.cast(pl.Int64).cum_sum())
        .filter(pl.col("pair") > 0)
        .group_by("pair", maintain_order=True)
        .agg(pl.col("row").first(), pl.col("word").str.join(" "))
    )
    parts = joined["word"].str.splitn("=", 2).struct.unnest()
    values = _unescaped(parts["field_1"].str.strip_chars_end(" "), _CEF_ESCAPES)
    return Pairs(joined["row"].to_numpy(), parts["field_0"], values.set(values == "", None))


def cef_header(texts: pl.Series) -> pl.Series:
    """Return fields of the head of CEF without their escapes."""
    return _unescaped(texts, _CEF_ESCAPES)


def leef_pairs(texts: pl.Series, delimiters: pl.Series) -> tuple[Pairs, dict[int, str]]:
    """Return the pairs of attributes of LEEF, and which texts have something else, and what.

    Each text is divided by its own delimiter: a character, ``x5E`` or NULL for a tab.
    """
    found: list[tuple[NDArray[np.int64], pl.DataFrame]] = []
    for written in delimiters.unique().to_list():
        rows = np.flatnonzero(delimiters.eq_missing(pl.Series([written], dtype=pl.String)).to_numpy())
        divided = texts[rows].str.split(_leef_delimiter(written))
        of_rows = np.repeat(rows, divided.list.len().to_numpy())
        parts = divided.list.explode(keep_nulls=False, empty_as_null=False).str.splitn("=", 2).struct.unnest()
        found.append((of_rows, parts))
    if not found:
        return Pairs(np.zeros(0, dtype=np.int64), _NULL.clear(), _NULL.clear()), {}
    parts = pl.concat([each for _, each in found], rechunk=True)
    rows, keys, values = (
        np.concatenate([rows for rows, _ in found]),
        parts["field_0"].str.strip_chars(),
        parts["field_1"],
    )
    # A value with the delimiter in it, which LEEF cannot say: the rest of it would be lost.
    wrong = np.flatnonzero((values.is_null() & (keys != "")).to_numpy()).tolist()
    faults = {int(rows[place]): f"an attribute without '=': {shown(keys[place])}" for place in reversed(wrong)}
    return Pairs(rows, keys, values.set(values == "", None)), faults


def _leef_delimiter(written: str | None) -> str:
    if written is None:
        return "\t"
    return chr(int(written.lower().lstrip("0").removeprefix("x"), 16)) if len(written) > 1 else written


def _unescaped(texts: pl.Series, escapes: Mapping[str, str]) -> pl.Series:
    if not texts.str.contains("\\", literal=True).any():
        return texts
    return texts.str.replace_many(list(escapes), list(escapes.values()), leftmost=True)
