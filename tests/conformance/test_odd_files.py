"""Files that no program should write, in every format of texts: what is no row is a dead letter, and the other records are read."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import headrace as hr
import pytest
from headrace.testing import MemorySink

pytestmark = pytest.mark.slow
TEXT = {"a": "string"}
#: Schema, options and a good body of each format, in which "x" is a value.
FORMATS: dict[str, tuple[Any, dict[str, Any], bytes]] = {
    "json": (TEXT, {"max_body_bytes": "64 KiB"}, b'{"a": "x"}'),
    "csv": (TEXT, {"max_body_bytes": "64 KiB"}, b"x"),
    "raw": (TEXT, {"max_body_bytes": "64 KiB"}, b"x"),
    "logfmt": (TEXT, {}, b"a=x b=y"),
    "cef": (None, {}, b"CEF:0|V|P|1|100|name|5|src=10.0.0.1 msg=x"),
    "leef": (None, {}, b"LEEF:1.0|V|P|1|100|src=10.0.0.1\tmsg=x"),
    "grok": (None, {"pattern": "%{WORD:a}"}, b"x"),
    "syslog": (None, {}, b"<13>1 2026-02-05T17:32:18Z host app 1 - - x"),
    "cri": (None, {}, b"2026-01-01T00:00:00.000000000Z stdout F x"),
    "docker-json": (None, {}, b'{"log":"x\\n","stream":"stdout","time":"2026-01-01T00:00:00.0Z"}'),
    "journal-json": (None, {}, b'{"MESSAGE":"x","__REALTIME_TIMESTAMP":"1"}'),
    "nginx-access": (None, {}, b'192.0.2.1 - - [10/Oct/2023:13:55:36 +0000] "GET /x HTTP/1.1" 200 5 "-" "curl"'),
}
BOM = b"\xef\xbb\xbf"
FILES: dict[str, Callable[[bytes], bytes]] = {
    "plain": lambda line: line + b"\n" + line + b"\n",
    "byte order mark": lambda line: BOM + line + b"\n" + line + b"\n",
    "carriage returns": lambda line: line + b"\r\n" + line + b"\r\n",
    "empty": lambda line: b"",
    "blank lines": lambda line: b"\n\r\n" + line + b"\n\n",
    "carriage return within": lambda line: line + b"\r" + line + b"\n",
    "no last newline": lambda line: line + b"\n" + line,
    "value of no UTF-8": lambda line: line + b"\n" + line.replace(b"x", b"\xff\xfe") + b"\n" + line + b"\n",
    "line of no UTF-8": lambda line: line + b"\n\xff\xfe\n" + line + b"\n",
    "NUL bytes": lambda line: line + b"\n" + line.replace(b"x", b"\0") + b"\n\0\0\n" + line + b"\n",
    "huge line": lambda line: line + b"\n" + line.replace(b"x", b"y" * 300_000) + b"\n" + line + b"\n",
    "surrogate": lambda line: line + b"\n" + line.replace(b"x", b"\xed\xa0\x80") + b"\n",
    "other line breaks": lambda line: line + b"\n" + line.replace(b"x", "\u2028\x0b\x0c\x1c\x85".encode()) + b"\n",
    "control characters": lambda line: line + b"\n" + line.replace(b"x", b"\x1b[0m\x07") + b"\n",
}


@pytest.mark.parametrize("kind", FILES)
@pytest.mark.parametrize("format", FORMATS)
def test_each_record_is_a_row_or_a_dead_letter(tmp_path: Path, format: str, kind: str) -> None:
    schema, options, line = FORMATS[format]
    content = FILES[kind](line)
    (tmp_path / "f.log").write_bytes(content)
    count = sum(bool(each.strip(b"\r")) for each in content.split(b"\n"))
    good, bad = MemorySink(), MemorySink()
    given = options if schema is None else {**options, "schema": schema}
    stream = hr.stream("tests", "odd").from_file(str(tmp_path), format=format, max_record_bytes="64 KiB", **given)
    stream.dead_letters(lambda letters: letters.to(bad)).to(good).run(backend="light", show_progress=False)
    assert len(good.rows) + len(bad.rows) == count
    assert all(row["reason"] for row in bad.rows)
    lines = {line, BOM + line} & {each.strip(b"\r") for each in content.split(b"\n")}
    assert len(good.rows) >= len(lines)
