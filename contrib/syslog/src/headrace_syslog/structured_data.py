"""Converts structured data of RFC 5424 to JSON, a column at once."""

from __future__ import annotations

import numpy as np
import polars as pl

from headrace_syslog.lines import ELEMENT, NAME, PAIR

_HEAD = rf"(?s)^\[(?P<id>{NAME})(?P<pairs>.*)\]\z"
_PARTS = rf'(?s)^ (?P<name>{NAME})="(?P<value>.*)"\z'
#: Escapes of values, as JSON writes them. A backslash before any other character means itself.
_ESCAPES = {
    "\\\\": "\\\\", '\\"': '\\"', "\\]": "]", "\\": "\\\\", **{chr(code): f"\\u{code:04x}" for code in range(32)},
}  # fmt: skip


def to_json(texts: pl.Series) -> pl.Series:
    """Return ``[id name="value"]…`` as ``{"id": {"name": "value"}}``; NULL stays NULL. The texts must fit the grammar.

    A name that comes several times in an element has a list of its values. Elements of the same id are one.
    """
    if texts.null_count() == len(texts):
        return texts
    each = texts.drop_nulls().unique()
    return texts.replace_strict(each, _made(each), default=None, return_dtype=pl.String)


def _made(texts: pl.Series) -> pl.Series:
    elements = _exploded(pl.DataFrame({"row": np.arange(len(texts))}), texts.str.extract_all(f"(?s){ELEMENT}"))
    heads = elements["text"].str.extract_groups(_HEAD).struct.unnest()
    named = pl.DataFrame([elements["row"], heads["id"]])
    pairs = _exploded(named, heads["pairs"].str.extract_all(f"(?s){PAIR}"))
    parts = pairs["text"].str.extract_groups(_PARTS).struct.unnest()
    values = parts["value"].str.replace_many(list(_ESCAPES), list(_ESCAPES.values()), leftmost=True)
    of_names = (
        pairs.select("row", "id")
        .with_columns(name=parts["name"], value='"' + values + '"')
        .group_by("row", "id", "name", maintain_order=True)
        .agg(value=pl.col("value").str.join(","), count=pl.len())
        .select(
            "row",
            "id",
            member=_key("name")
            + pl.when(pl.col("count") > 1).then("[" + pl.col("value") + "]").otherwise(pl.col("value")),
        )
        .group_by("row", "id", maintain_order=True)
        .agg(pl.col("member").str.join(","))
    )
    return (
        named.unique(maintain_order=True)
        .join(of_names, on=["row", "id"], how="left", maintain_order="left")
        .select("row", element=_key("id") + "{" + pl.col("member").fill_null("") + "}")
        .group_by("row", maintain_order=True)
        .agg(pl.col("element").str.join(","))
        .select("{" + pl.col("element") + "}")
        .to_series()
    )


def _exploded(frame: pl.DataFrame, lists: pl.Series) -> pl.DataFrame:
    """Return a row for each text of the lists, with the columns of the list's row."""
    rows = np.repeat(np.arange(frame.height), lists.list.len().to_numpy())
    return frame[rows].with_columns(text=lists.list.explode(keep_nulls=False, empty_as_null=False))


def _key(name: str) -> pl.Expr:
    return '"' + pl.col(name).str.replace_all("\\", "\\\\", literal=True) + '":'
