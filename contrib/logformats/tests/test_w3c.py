"""Lines of the W3C extended format: columns change where a line #Fields says so, per file and over restarts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import headrace as hr
import polars as pl
import pytest
from headrace.interfaces.operator import RejectedRows
from headrace_contract import StatefulOperatorContract
from headrace_logformats.w3c import ParseW3c
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.effort import examples

SCHEMA = {"c-ip": "string", "sc-status": "int64", "timestamp": "timestamp", "cs(User-Agent)": "string"}
LINES = [
    "#Software: Microsoft Internet Information Services 10.0",
    "#Fields: date time c-ip sc-status cs(User-Agent)",
    "2026-01-15 10:00:00 192.0.2.1 200 Mozilla/5.0+(X11)",
    "2026-01-15 10:00:01 192.0.2.2 - -",
    "#Fields: c-ip date time s-port",
    '"192.0.2.3" 2026-01-15 10:00:02 443',
    "192.0.2.4 2026-01-15 10:00:03",
    "#Fields: sc-status",
    "404",
    "none",
    "",
]


class TestParseW3c(StatefulOperatorContract):
    schema = {"path": "string", "line": "string"}

    def make_spec(self) -> ParseW3c:
        return ParseW3c(["path"], SCHEMA)

    def make_rows(self, first: int, count: int) -> list[dict[str, Any]]:
        return [{"path": f"f{n % 3}", "line": LINES[n % 7]} for n in range(first, first + count)]


def test_each_file_has_the_fields_that_it_names(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_text("\n".join(LINES) + "\n")
    (tmp_path / "b.log").write_text("too early\n" + "\n".join(LINES[:3]) + "\n")
    stream = hr.stream("test", "w3c").from_file(str(tmp_path / "*.log"), format="raw", metadata={"path": "queue"})
    parsed = stream.key_by("path").parse_w3c(SCHEMA)
    parsed.dead_letters(lambda bad: bad.to_file(str(tmp_path / "bad"), format="json")).to_file(
        str(tmp_path / "out"), format="json"
    ).run("light")
    found = sorted(
        (row["c-ip"] or "", row["sc-status"], (row["timestamp"] or "")[11:19], row["cs(User-Agent)"])
        for row in rows_of(tmp_path / "out")
    )
    assert found == [
        ("", 404, "", None),
        ("192.0.2.1", 200, "10:00:00", "Mozilla/5.0+(X11)"),
        ("192.0.2.1", 200, "10:00:00", "Mozilla/5.0+(X11)"),
        ("192.0.2.2", None, "10:00:01", None),
        ("192.0.2.3", None, "10:00:02", None),
    ]
    assert sorted(row["reason"] for row in rows_of(tmp_path / "bad")) == [
        "expected 4 values as in #Fields, found 3",
        "field 'sc-status': none is none of its type",
        "no line #Fields came before it",
    ]


def rows_of(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for part in folder.glob("part-*") for line in part.read_text().splitlines()]


def test_wrong_arguments() -> None:
    columns = hr.Schema.of({"path": "string", "line": "string"})
    with pytest.raises(hr.OptionError, match="'sc-status': expected string, int64, float64"):
        ParseW3c(["path"], {"sc-status": "date"})
    with pytest.raises(hr.PlanError, match="no column 'text' of type string"):
        ParseW3c(["path"], SCHEMA, on="text").output_schema(columns)
    with pytest.raises(hr.PlanError, match="a column 'path' already"):
        ParseW3c(["path"], {"path": "string"}).output_schema(columns)


TEXTS = st.one_of(
    st.text(max_size=8),
    st.lists(st.sampled_from(['"', '""', " ", "a", "-", '" "', "#", "\t", "200"]), max_size=6).map("".join),
)
ROW = st.fixed_dictionaries({"agent": TEXTS, "cookie": TEXTS, "referer": TEXTS})
FIELDS = ("date", "time", "c-ip", "agent", "cookie", "referer", "sc-status")


def parsed(values: dict[str, str]) -> dict[str, Any] | None:
    """Return the row of a line; None for a dead letter."""
    fixed = {"date": "2026-01-15", "time": "10:00:00", "c-ip": "192.0.2.1", "sc-status": "200"}
    line = " ".join({**fixed, **values}[name] for name in FIELDS)
    spec = ParseW3c(["path"], dict.fromkeys(FIELDS[2:6], "string") | {"sc-status": "int64"})
    operator = spec.open(hr.Schema.of({"path": "string", "line": "string"}))
    frame = pl.DataFrame({"path": ["f"] * 2, "line": ["#Fields: " + " ".join(FIELDS), line]})
    found = list(operator.process(hr.Batch(hr.Queue("q"), frame)))
    rows = [row for one in found if isinstance(one, hr.Batch) for row in one.frame.to_dicts()]
    assert len(rows) + sum(isinstance(one, RejectedRows) for one in found) == 1
    return rows[0] if rows else None


def without_breaks(text: str) -> str:
    return "".join(each for each in text if each.isprintable() or each == "\t") or "-"


@settings(max_examples=examples(150), deadline=None)
@given(row=ROW)
def test_what_iis_writes_comes_back_in_its_field(row: dict[str, str]) -> None:
    """IIS writes a blank as ``+``, and quotes as they are; a value that begins and ends with one is taken for a text in quotes."""
    written = {name: without_breaks(text).replace(" ", "+").replace("\t", "+") for name, text in row.items()}
    found = parsed(written)
    assert found is not None
    assert (found["c-ip"], found["sc-status"]) == ("192.0.2.1", 200)
    for name, text in written.items():
        assert found[name] in (text, text[1:-1].replace('""', '"') if text.startswith('"') else None, None)
        assert (found[name] is None) == (text in ("-", '"-"'))


@settings(max_examples=examples(150), deadline=None)
@given(row=ROW)
def test_values_in_quotes_come_back_in_their_field(row: dict[str, str]) -> None:
    texts = {name: without_breaks(text) for name, text in row.items()}
    found = parsed({name: '"' + text.replace('"', '""') + '"' for name, text in texts.items()})
    if found is not None:
        assert found["sc-status"] == 200
        assert {name: found[name] for name in texts} == {
            name: None if text == "-" else text for name, text in texts.items()
        }
