"""Mistakes of users of the DSL: each is answered with an error of headrace's that says where it is, and what to write."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import headrace as hr
import pytest
from headrace.foundation.errors import CheckpointError, HeadraceError, OptionError
from headrace.testing import MemorySink, MemorySource

for needed in ("columnar", "stateful", "dimension", "light", "file", "kafka", "http"):
    pytest.importorskip(f"headrace_{needed}", reason="the mistakes are about verbs and connectors of other packages")

SCHEMA = {"k": "string", "v": "int64", "ts": "timestamp"}


def rows(name: str = "mistakes") -> hr.Stream:
    return hr.stream("test", name).from_(MemorySource({"q": []}), format="json", schema=SCHEMA)


def keyed() -> Any:
    return rows().key_by("k")


def run(**options: Any) -> Any:
    return rows().to(MemorySink()).run("light", **options)


MISTAKES: dict[str, tuple[Callable[[], Any], str]] = {
    "option that another library has": (
        lambda: rows().to_kafka("t", bootstrap_servers="localhost:9092", format="json"),
        "unknown option 'bootstrap_servers' [job 'test.mistakes', plugin 'kafka', option 'bootstrap_servers']\n"
        "  hint: it is called 'servers'",
    ),
    "unknown option": (
        lambda: hr.stream("test", "mistakes").from_file("in", colour="red"),
        "unknown option 'colour' [job 'test.mistakes', plugin 'file', option 'colour']\n  hint: options: path, format, schema,",
    ),
    "required option": (
        lambda: rows().to_kafka("t", format="json"),
        "required option is missing [job 'test.mistakes', plugin 'kafka', option 'servers']\n  hint: servers: addresses of",
    ),
    "schema as a list": (
        lambda: hr.stream("test", "mistakes").from_file("in", format="json", schema=["a"]),
        "a schema is a mapping of columns to types, not list [job 'test.mistakes', option 'schema']",
    ),
    "table as a name": (
        lambda: rows().lookup_join("prices", on="k"),
        "'prices' is not a table [job 'test.mistakes', plugin 'lookup_join', option 'table']",
    ),
    "no function": (
        lambda: rows().map(None),
        "map needs a function of a row, not None [job 'test.mistakes', plugin 'map']",
    ),
    "no rows": (
        lambda: keyed().top_n(0, by="v"),
        "0 is not a number of rows: it is a whole number from 1 on [job 'test.mistakes', plugin 'top_n', option 'n']",
    ),
    "key of a join": (
        lambda: rows().join(rows(), on="zz"),
        "unknown column 'zz' in the left stream [job 'test.mistakes', plugin 'join']",
    ),
    "empty window": (
        lambda: hr.tumbling("0 s", on="ts"),
        "unusable value '0 s': it must be more than 0 [option 'size']",
    ),
    "number as a word": (
        lambda: run(max_batch_records="many"),
        "unusable value 'many': Expected `int`, got `str` [job 'test.mistakes', plugin 'light', option 'max_batch_records']",
    ),
    "number too small": (lambda: run(max_batch_records=0), "plugin 'light', option 'max_batch_records']"),
    "truth as a word": (lambda: run(replace_output="perhaps"), "plugin 'light', option 'replace_output']"),
    "end": (
        lambda: run(until="midnight"),
        "unusable value 'midnight': it is 'end' or None [job 'test.mistakes', plugin 'light', option 'until']",
    ),
    "option of another backend": (
        lambda: run(master="local[2]"),
        "unknown option 'master' [job 'test.mistakes', plugin 'light', option 'master']",
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_answered(name: str) -> None:
    make, text = MISTAKES[name]
    with pytest.raises(HeadraceError, match=re.escape(text)):
        make()


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: rows().run(), "a stream has no verb 'run'; a stream is run by its sink: stream.to_print().run()"),
        (lambda: rows().group_by("k"), "write key_by(…).agg(…)"),
        (lambda: rows().withColumn("a", "v"), "write with_columns(name='expression')"),
        (lambda: rows().filtr("v"), "did you mean 'filter'?"),
        (
            lambda: keyed().window(hr.tumbling("1 min", on="ts")).to_print(),
            "a stream in windows has no 'to_print'; it needs agg",
        ),
    ],
)
def test_a_verb_that_is_called_otherwise(make: Callable[[], Any], text: str) -> None:
    with pytest.raises(AttributeError, match=re.escape(text)):
        make()


def test_numbers_and_truths_come_as_texts_from_command_lines() -> None:
    assert run(max_batch_records="5", replace_output="true").records_read == 0


def test_a_secret_that_is_not_there_names_its_option(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NOT_SET_AT_ALL", raising=False)
    job = rows().to_http("http://127.0.0.1:1/", token="${NOT_SET_AT_ALL}")
    text = "environment variable NOT_SET_AT_ALL is not set [job 'test.mistakes', plugin 'http', option 'token']"
    with pytest.raises(OptionError, match=re.escape(text)):
        job.run("light")


def test_a_checkpoint_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(CheckpointError, match="a part of this path is a file: name a directory"):
        run(checkpoint=tmp_path / "file")


def test_a_missing_file_names_the_job(tmp_path: Path) -> None:
    job = hr.stream("test", "files").from_file(str(tmp_path / "no"), format="json", schema=SCHEMA).to(MemorySink())
    with pytest.raises(HeadraceError, match=r"does not exist \[job 'test.files', plugin 'file', option 'path'\]"):
        job.run("light")


def test_a_job_shows_its_name_and_sinks() -> None:
    assert repr(rows().to(MemorySink(), name="alerts")) == "<job test.mistakes: alerts>"
