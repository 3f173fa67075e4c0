from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
from headrace.foundation.durable_files import replace_durably, sync_directory, write_durably, write_whole


def test_a_part_that_the_device_took_is_followed_by_the_rest(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    real = os.write
    monkeypatch.setattr(os, "write", lambda descriptor, data: real(descriptor, data[:7]))
    with open(tmp_path / "a", "wb") as file:
        write_whole(file.fileno(), bytes(range(100)))
    assert (tmp_path / "a").read_bytes() == bytes(range(100))


def test_content_and_entry_are_synced_in_this_order(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    steps: list[str] = []
    sync, replace = os.fsync, os.replace

    def synced(descriptor: int) -> None:
        steps.append("directory" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "file")
        sync(descriptor)

    def replaced(old: Path, new: Path) -> None:
        steps.append("rename")
        replace(old, new)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "replace", replaced)
    replace_durably(tmp_path / "a", b"one")
    replace_durably(tmp_path / "a", b"two")
    assert (tmp_path / "a").read_bytes() == b"two"
    assert steps == ["file", "rename", "directory"] * 2
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_what_could_not_be_written_leaves_the_file_as_it_was(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    replace_durably(tmp_path / "a", b"old")

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        replace_durably(tmp_path / "a", b"new")
    assert (tmp_path / "a").read_bytes() == b"old"


@pytest.mark.parametrize(("private", "mode"), [(True, 0o600), (False, 0o644)])
def test_private_files_are_for_their_user_alone(tmp_path: Path, private: bool, mode: int) -> None:
    before = os.umask(0o022)
    try:
        write_durably(tmp_path / "a", b"x", private=private)
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == mode


def test_a_directory_that_has_gone_is_said(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        sync_directory(tmp_path / "gone")
