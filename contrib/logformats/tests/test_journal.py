"""Entries of the journal, from files with values of any content."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import headrace as hr
import pytest

SCHEMA = {"MESSAGE": "string", "_PID": "int64"}
HARD = "a line\n\nafter an empty one\n_PID=7\nno field"


def binary(name: bytes, value: bytes) -> bytes:
    return name + b"\n" + len(value).to_bytes(8, "little") + value + b"\n"


def test_values_may_hold_what_looks_like_the_end_of_an_entry(tmp_path: Path) -> None:
    entries = [
        b"MESSAGE=first\n_PID=1\n",
        b"_PID=2\n" + binary(b"MESSAGE", HARD.encode()) + b"_X=1\n",
        b"_PID=3\nMESSAGE=once\nMESSAGE=twice\n",
        b"_X=without the others\n",
        binary(b"_X", bytes(range(256))) + b"MESSAGE=last\n",
    ]
    (tmp_path / "log").write_bytes(b"\n".join(entries) + b"\n")
    found = (
        hr.stream("test", "entries").from_file(str(tmp_path / "log"), format="journal-export", schema=SCHEMA).collect()
    )
    assert found.rows() == [("first", 1), (HARD, 2), ("once", 3), (None, None), ("last", None)]


def test_json(tmp_path: Path) -> None:
    entries = [
        {"MESSAGE": "first", "_PID": "1"},
        {"MESSAGE": list(HARD.encode()), "_PID": ["2", "3"]},
        {"MESSAGE": ["once", [255]], "_X": [255]},
        {"MESSAGE": None},
    ]
    (tmp_path / "log").write_text("".join(json.dumps(entry) + "\n" for entry in entries))
    found = (
        hr.stream("test", "entries").from_file(str(tmp_path / "log"), format="journal-json", schema=SCHEMA).collect()
    )
    assert found.rows() == [("first", 1), (HARD, 2), ("once", None), (None, None)]


def test_types_that_fields_do_not_have() -> None:
    from headrace_logformats import JournalExportCodec

    with pytest.raises(hr.OptionError, match="column 'x' has a type that cannot be read from the journal"):
        JournalExportCodec().decoder(hr.Schema.of({"x": "float64"}))


@pytest.mark.skipif(
    shutil.which("journalctl") is None or shutil.which("/lib/systemd/systemd-journal-remote") is None,
    reason="journalctl and systemd-journal-remote are not installed (Debian package systemd-journal-remote)",
)
@pytest.mark.parametrize("output", ["export", "json"])
def test_what_journalctl_writes(tmp_path: Path, output: str) -> None:
    """A journal is made of entries, and read back as journalctl gives them."""
    made = b"".join(
        b"__REALTIME_TIMESTAMP=%d\n__MONOTONIC_TIMESTAMP=%d\n_BOOT_ID=%032x\n" % (1_769_853_600_000_000 + n, n + 1, 7)
        + (binary(b"MESSAGE", HARD.encode()) if n % 3 == 1 else b"MESSAGE=line %d\n" % n)
        + b"_PID=%d\n\n" % n
        for n in range(10)
    )
    journal = tmp_path / "made.journal"
    remote = ["/lib/systemd/systemd-journal-remote", f"--output={journal}", "-"]
    subprocess.run(remote, input=made, check=True, capture_output=True)
    written = subprocess.run(
        ["journalctl", f"--file={journal}", "-o", output, "--all"], check=True, capture_output=True
    ).stdout
    (tmp_path / "log").write_bytes(written)
    stream = hr.stream("test", "entries").from_file(str(tmp_path / "log"), format=f"journal-{output}", schema=SCHEMA)
    assert stream.collect().rows() == [(HARD if n % 3 == 1 else f"line {n}", n) for n in range(10)]
