"""What a crash leaves is cut; what is damaged is named; histories that are made by hypothesis lose nothing that was acknowledged."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from headrace.foundation.errors import DataError
from headrace_buffer import RecordLog
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.effort import examples

QUOTA = 64 * 1024


def made(path: Path, blocks: int, size: int = 100) -> Path:
    """Make a log of so many blocks with a record each."""
    with RecordLog(path, quota_bytes=QUOTA) as log:
        for number in range(blocks):
            log.append([b"%d" % number + b"x" * size])
    return path


def last_segment(path: Path) -> Path:
    return max(path.glob("*.log"))


def contents(log: RecordLog) -> list[bytes]:
    offset, found = log.earliest, []
    while (records := log.read(offset, 100)) is not None:
        found += list(records.bodies)
        offset = records.end
    return found


def test_an_unfinished_block_is_cut_wherever_it_ends(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = made(tmp_path / "log", 3)
    whole = last_segment(path).read_bytes()
    with RecordLog(path, quota_bytes=QUOTA) as log:
        log.append([b"last"])
    longer = last_segment(path).read_bytes()
    for end in range(len(whole) + 1, len(longer)):
        last_segment(path).write_bytes(longer[:end])
        with RecordLog(path, quota_bytes=QUOTA) as log:
            assert log.latest == 3
            assert log.append([b"again"]).first == 3
            assert contents(log)[2:] == [b"2" + b"x" * 100, b"again"]
    assert f"cut {len(longer) - len(whole) - 1} bytes behind record 2" in caplog.text


@pytest.mark.parametrize("garbage", [b"\0" * 500, b"\xc1HRB" + b"\xff" * 100, b"x"])
def test_what_is_no_block_at_the_end_is_cut(tmp_path: Path, garbage: bytes) -> None:
    path = made(tmp_path / "log", 3)
    with last_segment(path).open("ab") as file:
        file.write(garbage)
    with RecordLog(path, quota_bytes=QUOTA) as log:
        assert (log.latest, len(contents(log))) == (3, 3)


@pytest.mark.parametrize("size", [0, 7, 20])
def test_a_segment_that_was_being_made_is_made_anew(tmp_path: Path, size: int) -> None:
    path = made(tmp_path / "log", 3)
    (path / f"{3:020}.log").write_bytes(b"\0" * size)
    with RecordLog(path, quota_bytes=QUOTA) as log:
        assert log.append([b"next"]).first == 3
        assert len(contents(log)) == 4


def test_a_body_that_looks_like_a_block_is_none(tmp_path: Path) -> None:
    """Senders choose bodies. One that holds a copy of a block must not make an unfinished block look like damage in the middle."""
    other = made(tmp_path / "other", 5)
    path = made(tmp_path / "log", 2)
    with RecordLog(path, quota_bytes=QUOTA) as log:
        log.append([last_segment(other).read_bytes() + b"y" * 50])
    last_segment(path).write_bytes(last_segment(path).read_bytes()[:-10])
    with RecordLog(path, quota_bytes=QUOTA) as log:
        assert log.latest == 2


def test_damage_in_the_middle_of_the_last_segment_is_named(tmp_path: Path) -> None:
    path = made(tmp_path / "log", 5)
    file = last_segment(path)
    data = bytearray(file.read_bytes())
    data[data.index(b"2xxx")] ^= 1
    file.write_bytes(data)
    with pytest.raises(DataError, match=r"00\.log is damaged at byte \d+: records 2 to 2 cannot be read") as found:
        RecordLog(path, quota_bytes=QUOTA)
    assert found.value.offset == 2


@pytest.mark.parametrize("what", ["body", "header"])
def test_damage_in_an_earlier_segment_is_named_when_it_is_read(tmp_path: Path, what: str) -> None:
    path = made(tmp_path / "log", 40, size=1000)
    file = min(path.glob("*.log"))
    data = bytearray(file.read_bytes())
    place = data.index(b"2xxx")
    data[place if what == "body" else data.rindex(b"\xc1HRB", 0, place)] ^= 1
    file.write_bytes(data)
    with RecordLog(path, quota_bytes=QUOTA) as log:
        before = log.read(0, 100)
        assert before is not None
        assert len(before) == 2
        with pytest.raises(
            DataError, match=r"00\.log is damaged at byte \d+: records 2 to \d+ cannot be read"
        ) as found:
            log.read(2, 1)
        assert found.value.offset == 2
        assert log.append([b"goes on"]).first == 40
        behind = log.read(20, 1)
        assert behind is not None
        if what == "body":
            assert log.read(3, 1) is not None


def test_a_file_that_is_missing_is_named(tmp_path: Path) -> None:
    path = made(tmp_path / "log", 40, size=1000)
    first, second = sorted(path.glob("*.log"))[:2]
    second.rename(tmp_path / "away")
    with RecordLog(path, quota_bytes=QUOTA) as log:
        offset = int(second.name.removesuffix(".log"))
        with pytest.raises(DataError, match="is damaged"):
            log.read(offset, 1)
    first.unlink()
    with pytest.raises(DataError, match="should begin at record 0, but the file with it is missing"):
        RecordLog(path, quota_bytes=QUOTA)


@pytest.mark.parametrize("damage", ["missing", "cut", "changed", "no object"])
def test_a_damaged_state_is_named(tmp_path: Path, damage: str) -> None:
    path = made(tmp_path / "log", 3)
    state = path / "state.json"
    text = state.read_text()
    if damage == "missing":
        state.unlink()
    else:
        state.write_text(
            {"cut": text[:50], "changed": text.replace('"trimmed": 0', '"trimmed": 1'), "no object": "[]"}[damage]
        )
    with pytest.raises(DataError, match=r"state\.json"):
        RecordLog(path, quota_bytes=QUOTA)


# ---------------------------------------------------------------------------------------------------- histories

_append = st.tuples(st.just("append"), st.lists(st.integers(0, 3000), min_size=1, max_size=4))
_trim = st.tuples(st.just("trim"), st.floats(0, 1))
_crash = st.tuples(st.just("crash"), st.binary(max_size=30))
_reopen = st.tuples(st.just("reopen"), st.none())


@settings(max_examples=examples(60))
@given(
    when_full=st.sampled_from(["drop_oldest", "drop_newest"]),
    steps=st.lists(st.one_of(_append, _append, _append, _trim, _crash, _reopen), max_size=25),
)
def test_histories(tmp_path_factory: pytest.TempPathFactory, when_full: Any, steps: list[tuple[str, Any]]) -> None:
    """A model of the log says what each record is: what was acknowledged is there, or trimmed, or in a gap that is reported."""
    path = tmp_path_factory.mktemp("history") / "0"
    log = RecordLog(path, quota_bytes=QUOTA, when_full=when_full)
    stored: list[bytes] = []
    dropped = 0
    try:
        for number, (step, value) in enumerate(steps):
            if step == "append":
                bodies = [b"%d." % number + b"x" * size for size in value if sum(value) < 7000] or [b"%d" % number]
                appended = log.append(bodies)
                assert appended.first == len(stored)
                stored += bodies[: appended.count]
                dropped += appended.dropped
            elif step == "trim":
                log.trim(log.earliest + round(value * (log.latest - log.earliest)))
            else:
                if step == "crash":  # the files as they are now, and what an unfinished write may leave behind them
                    copy = path.with_name(f"after-{number}")
                    shutil.copytree(path, copy, ignore=shutil.ignore_patterns("lock"))
                    with last_segment(copy).open("ab") as file:
                        file.write(value)
                    path = copy
                log.close()
                log = RecordLog(path, quota_bytes=QUOTA, when_full=when_full)
            status = log.status()
            assert status.latest == len(stored)
            assert contents(log) == stored[log.earliest :]
            assert status.used_bytes == sum(file.stat().st_size for file in path.glob("*.log")) <= QUOTA
            assert sum(gap.end - gap.first for gap in status.gaps) == status.dropped_oldest
            if step != "crash":
                assert status.dropped_newest <= dropped
    finally:
        log.close()
