"""The kernel by itself: that it is there, what it leaves to others, and that it never reads beyond a buffer."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import headrace as hr
import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from headrace.codecs.json import JsonCodec, JsonSettings
from headrace.codecs.json_decoder import JsonDecoder
from headrace.flow.messages import Bodies
from headrace.flow.schema import Schema
from headrace.interfaces.codec import Decoder
from headrace_turbo import library as kernel
from headrace_turbo.json_decoder import KernelJsonDecoder
from headrace_turbo.kernel import KernelDecoder, KernelError
from headrace_turbo.library import library


def decoder(schema: dict[str, str], **options: Any) -> Decoder:
    return JsonCodec(JsonSettings(**options)).decoder(Schema.of(schema))


def test_where_cargo_is_the_kernel_is() -> None:
    assert shutil.which("cargo") is None or library() is not None


needs_kernel = pytest.mark.skipif(library() is None, reason="headrace-turbo was installed without cargo")


@needs_kernel
def test_a_kernel_of_another_version_is_told(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, fresh_library: Callable[[], None]
) -> None:
    """An editable installation keeps its compiled kernel when its Python is updated: decoding is then slower, which nobody would see."""
    fresh_library()
    monkeypatch.setattr(kernel, "INTERFACE_VERSION", 0)
    assert library() is None
    assert "headrace-turbo is not used: its kernel has version" in caplog.text
    assert "install the package again" in caplog.text


@needs_kernel
@pytest.mark.parametrize("kind", ["string", "int8", "int64", "float32", "float64", "boolean", "timestamp", "timestamp_ntz",
    "date", "decimal(10, 2)", "json", "array<string>", "struct<a int64, b array<float64>>"])  # fmt: skip
def test_types_of_the_kernel(kind: str) -> None:
    assert isinstance(decoder({"a": kind}), KernelJsonDecoder)


@needs_kernel
@pytest.mark.parametrize("kind", ["time", "duration", "binary", "array<binary>", "struct<a int64, b time>"])
def test_types_that_are_left_to_the_plain_decoder(kind: str) -> None:
    assert isinstance(decoder({"other": "string", "a": kind}), JsonDecoder)
    assert isinstance(decoder({"a": "timestamp"}, timestamp_format="%d/%b/%Y:%H:%M:%S %z"), JsonDecoder)


def test_it_can_be_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADRACE_DECODERS", "plain")
    assert isinstance(decoder({"a": "string"}), JsonDecoder)


def test_without_a_compiled_kernel_the_plain_decoder_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fresh_library: Callable[[], None]
) -> None:
    for place in (tmp_path / "missing.so", Path(__file__)):
        fresh_library()
        monkeypatch.setattr(kernel, "LIBRARY", place)
        found = decoder({"a": "int64"})
        assert isinstance(found, JsonDecoder)
        assert found.decode(Bodies.of([b'{"a": 1}'])).frame["a"].to_list() == [1]


def test_what_looks_for_the_kernel_does_not_import_pyarrow() -> None:
    """A process without a kernel has no use for it: 28 MB."""
    code = "import sys, headrace_turbo.offer; headrace_turbo.offer.library(); assert 'pyarrow' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.fixture
def fresh_library(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Forgets the library that was found, now and after the test."""
    yield library.cache_clear
    monkeypatch.undo()
    library.cache_clear()


class Refusing(Decoder):
    """Stands for the plain decoder where it must not be asked."""

    def decode(self, bodies: Bodies) -> Any:
        raise AssertionError(list(bodies))


@needs_kernel
def test_usual_bodies_are_decoded_by_the_kernel_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    found = decoder({"s": "string", "i": "int64", "f": "float64", "b": "boolean", "t": "timestamp", "d": "decimal(10, 2)",
                     "l": "array<int64>", "n": "struct<x int64, y string>", "j": "json"})  # fmt: skip
    monkeypatch.setattr(found, "_plain", Refusing())
    bodies = [
        b'{"s": "a\\u00e9\\n\\"\\ud83d\\ude00", "i": -12, "f": 1.25e3, "b": true, "t": "2024-01-02T03:04:05.5Z", "d": 12.50}',
        b' {"more": {"x": [1, {"y": null}]}, "l": [1, null, 3], "n": {"y": "z", "w": 1}, "j": {"k": [1, 2.50]}} ',
        b'{"t":1700000000123,"s":null,"l":[],"d":"7","unknown":"\xc3\xa9"}',
        b"{}",
    ]
    rows = found.decode(Bodies.of(bodies)).frame.rows(named=True)
    assert rows[0]["s"] == 'aé\n"😀'
    assert [row["i"] for row in rows] == [-12, None, None, None]
    assert rows[0]["f"] == 1250.0
    assert str(rows[0]["t"]) == "2024-01-02 03:04:05.500000+00:00"
    assert str(rows[2]["t"]) == "2023-11-14 22:13:20.123000+00:00"
    assert [str(row["d"]) for row in rows] == ["12.50", "None", "7.00", "None"]
    assert [row["l"] for row in rows] == [None, [1, None, 3], [], None]
    assert [row["n"] for row in rows] == [None, {"x": None, "y": "z"}, None, None]
    assert rows[1]["j"] == '{"k": [1, 2.50]}'


@needs_kernel
def test_names_that_differ_little_and_escapes_of_every_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    names = [
        "a",
        "b",
        "ab",
        "abcdefg",
        "abcdefgh",
        "abcdefgi",
        "abcdefghi",
        *("x" * 8 + middle + "y" * 8 for middle in ("", "1", "2", "12")),
    ]
    texts = [
        "",
        '"',
        "\\",
        "a/b",
        "\b\f\n\r\t",
        "short\n",
        "exactly12\\\\\\",
        "longer than twelve\n",
        "é\u4e2d\U0001f600",
        "\x00",
        "plain",
    ]
    rows = [
        {name: texts[(place + turn) % len(texts)] for place, name in enumerate(names[turn % 3 :])} for turn in range(40)
    ]
    rows += [dict(reversed(row.items())) for row in rows]
    bodies = Bodies.of([json.dumps(row, ensure_ascii=number % 2 == 0).encode() for number, row in enumerate(rows)])
    made = decoder(dict.fromkeys(names, "string"))
    monkeypatch.setattr(made, "_plain", Refusing())
    assert made.decode(bodies).frame.rows() == [tuple(row.get(name) for name in names) for row in rows]


@needs_kernel
def test_one_bad_body_among_many(monkeypatch: pytest.MonkeyPatch) -> None:
    found = decoder({"i": "int64"})
    decoded = found.decode(
        Bodies.of([b'{"i": %d}' % number if number != 700 else b'{"i": "x"}' for number in range(1000)])
    )
    assert [(each.row, each.reason) for each in decoded.bad] == [
        (700, "column 'i': expected int64, found string \"x\"")
    ]
    assert decoded.frame["i"].to_list() == [number for number in range(1000) if number != 700]
    assert decoded.rows is not None
    assert decoded.rows.tolist() == decoded.frame["i"].to_list()


@needs_kernel
def test_no_bodies_and_no_columns() -> None:
    none = decoder({"i": "int64", "s": "string", "l": "array<string>"}).decode(Bodies.of([]))
    assert none.frame.is_empty()
    assert none.frame.schema == {"i": pl.Int64, "s": pl.String, "l": pl.List(pl.String)}
    empty = JsonCodec().decoder(Schema.of({"i": "int64"}), [])
    assert isinstance(empty, KernelJsonDecoder)
    counted = empty.decode(Bodies.of([b"{}", b"[]", b'{"i": "not read"}']))
    assert (counted.frame.height, counted.frame.width) == (2, 0)
    assert [each.row for each in counted.bad] == [1]


@needs_kernel
def test_after_many_bad_bodies_the_kernel_rests_and_comes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    found = decoder({"i": "int64"})
    asked: list[int] = []
    assert isinstance(found, KernelJsonDecoder)
    real = found._kernel
    assert real is not None
    decode = real.decode

    def counted(bodies: Bodies, max_body_bytes: int) -> Any:
        asked.append(len(bodies))
        return decode(bodies, max_body_bytes)

    monkeypatch.setattr(real, "decode", counted)
    for _ in range(34):
        assert len(found.decode(Bodies.of([b"{", b"}"])).bad) == 2
    assert len(asked) == 2


@needs_kernel
def test_places_beyond_the_buffer_are_refused_and_the_plain_decoder_goes_on() -> None:
    kernel_library = library()
    assert kernel_library is not None
    one = KernelDecoder(kernel_library, b"\0" * 8, {})
    for start, end in ((0, 3), (-1, 1), (2, 1)):
        with pytest.raises(KernelError):
            one.decode(Bodies(b"{}", np.array([start]), np.array([end])), 100)
    for wrong in (b"", b"\1" * 8, b"\0" * 9):
        with pytest.raises(KernelError, match="description"):
            KernelDecoder(kernel_library, wrong, {"n": pa.int64()})


@needs_kernel
def test_columns_outlive_their_batch_and_their_decoder() -> None:
    """Each buffer is owned by the column that uses it."""
    frames = []
    for number in range(20):
        found = decoder({"s": "string", "i": "int64"})
        text = f"{number} and more than twelve bytes"
        frames.append(
            found.decode(Bodies.of([b'{"s": "%s", "i": %d}' % (text.encode(), number)] * 1000)).frame["s"].tail(1)
        )
        del found
    assert [frame.item() for frame in frames] == [f"{number} and more than twelve bytes" for number in range(20)]


@needs_kernel
def test_a_job_has_the_same_rows_and_dead_letters_with_and_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    lines = [b'{"n": %d, "s": "a\\tb"}' % number if number % 7 else b'{"n": "%d"' % number for number in range(500)]
    (tmp_path / "in.ndjson").write_bytes(b"\n".join(lines))
    outcomes = []
    for way in ("", "plain"):
        monkeypatch.setenv("HEADRACE_DECODERS", way)
        job = hr.stream("team", f"job{way}").from_file("in.ndjson", format="json", schema={"n": "int64", "s": "string"})
        report = job.where("n > 10").to_file(f"out{way}", format="json").run("light", show_progress=False)
        written = sorted(line for part in Path(f"out{way}").glob("*.json") for line in part.read_bytes().splitlines())
        outcomes.append((written, report.dead_letters))
    assert outcomes[0] == outcomes[1]
    assert len(outcomes[0][0]) == 419
