"""Divided lines come back together, whatever is mixed with them, and paths give the pod."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import headrace as hr
import pytest
from headrace.testing import MemorySource
from headrace_logformats import CriCodec, DockerJsonCodec

CRI = [
    "2026-01-31T10:00:00.1Z stdout F whole",
    "2026-01-31T10:00:00.2Z stdout P one ",
    "2026-01-31T10:00:00.3Z stderr P ONE ",
    "2026-01-31T10:00:00.4Z stdout P two ",
    "2026-01-31T10:00:00.5Z stderr F TWO",
    "2026-01-31T10:00:00.6Z stderr F between",
    "2026-01-31T10:00:00.7+00:00 stdout F:tag three",
    "2026-01-31T10:00:00.8Z stdout F",
    "2026-01-31T10:00:00.9Z stdout P the end is missing",
]
EXPECTED = [
    ("stdout", "whole", False),
    ("stderr", "ONE TWO", False),
    ("stderr", "between", False),
    ("stdout", "one two three", False),
    ("stdout", "", False),
    ("stdout", "the end is missing", True),
]


def as_docker(line: str) -> str:
    time, stream, tag, *message = line.split(" ", 3)
    log = "".join(message) + ("" if tag == "P" else "\n")
    return json.dumps({"log": log, "stream": stream, "time": time}, separators=(",", ":"))


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("format", ["cri", "docker-json"])
def test_divided_lines_of_a_file(tmp_path: Path, format: str, packed: bool) -> None:
    lines = CRI if format == "cri" else [as_docker(line) for line in CRI]
    data = "".join(line + "\n" for line in lines).encode()
    (tmp_path / "0.log").write_bytes(gzip.compress(data) if packed else data)
    found = hr.stream("test", "lines").from_file(str(tmp_path / "0.log"), format=format).collect()
    assert found.select("stream", "message", "partial").rows() == EXPECTED
    times = found["time"].dt.to_string("%6f").to_list()
    assert times == ["100000", "300000", "600000", "200000", "800000", "900000"]


@pytest.mark.parametrize("format", ["cri", "docker-json"])
def test_parts_that_come_alone_are_rows(format: str) -> None:
    lines = CRI if format == "cri" else [as_docker(line) for line in CRI]
    source = MemorySource({"q": [line.encode() for line in lines]})
    found = hr.stream("test", "lines").from_(source, format=format).collect()
    assert found["partial"].to_list() == [" P " in line for line in CRI]
    assert "".join(found.filter(found["stream"] == "stdout")["message"]) == "wholeone two threethe end is missing"


def test_a_damaged_line_is_a_dead_letter_and_its_neighbours_are_rows(tmp_path: Path) -> None:
    lines = [CRI[0], "no line", CRI[1], "neither", CRI[0]]
    (tmp_path / "0.log").write_text("".join(line + "\n" for line in lines))
    stream = hr.stream("test", "lines").from_file(str(tmp_path / "0.log"), format="cri")
    stream.dead_letters(lambda bad: bad.to_file(str(tmp_path / "bad"))).to_file(str(tmp_path / "good")).run("light")

    def rows(folder: str) -> list[dict[str, object]]:
        parts = sorted((tmp_path / folder).glob("part-*"))
        return [json.loads(line) for part in parts for line in part.read_text().splitlines()]

    assert [row["message"] for row in rows("good")] == ["whole", "one ", "whole"]
    assert [row["reason"] for row in rows("bad")] == [
        f"expected 'time stdout|stderr P|F message', found \"{text}\"" for text in ("no line", "neither")
    ]


def test_columns_are_fixed() -> None:
    for codec in (CriCodec(), DockerJsonCodec()):
        with pytest.raises(hr.OptionError, match=r"no column 'mesage'.*\n.*did you mean 'message'"):
            codec.decoder(hr.Schema.of({"mesage": "string"}))
        with pytest.raises(hr.OptionError, match="column 'time' has a different type in this format"):
            codec.decoder(hr.Schema.of({"time": "string"}))
        with pytest.raises(hr.PlanError, match="can only be read"):
            codec.encoder(None)


UID = "0b1f22aa-0000"


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        (f"/var/log/pods/shop_web-1_{UID}/nginx/0.log", ("shop", "web-1", UID, "nginx", 0)),
        (f"/var/log/pods/shop_web-1_{UID}/nginx/12.log.20260131-100000.gz", ("shop", "web-1", UID, "nginx", 12)),
        (f"shop_web-1_{UID}/nginx/3.log", ("shop", "web-1", UID, "nginx", 3)),
        (f"/var/log/containers/web-1_shop_nginx-{'0a' * 32}.log", ("shop", "web-1", None, "nginx", None)),
        ("/var/log/pods/shop_web-1/nginx/0.log", (None,) * 5),
        (f"/var/log/pods/shop_web-1_{UID}/nginx/x.log", (None,) * 5),
        (f"/var/log/pods/shop_web-1_{UID}/nginx/٣.log", (None,) * 5),
        ("", (None,) * 5),
        (None, (None,) * 5),
    ],
)
def test_paths(path: str | None, expected: tuple[object, ...]) -> None:
    source = MemorySource({"q": [json.dumps({"path": path}).encode()]})
    stream = hr.stream("test", "paths").from_(source, format="json", schema={"path": "string"}).kubernetes_path()
    assert stream.collect().rows() == [(path, *expected)]


def test_paths_need_a_column() -> None:
    stream = hr.stream("test", "paths").from_(MemorySource({"q": []}), format="cri")
    with pytest.raises(hr.PlanError, match=r"no column 'path' of type string"):
        stream.kubernetes_path()
    with pytest.raises(hr.PlanError, match=r"no column 'time' of type string"):
        stream.kubernetes_path(on="time")
