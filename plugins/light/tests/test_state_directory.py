"""State in a directory keeps the contract."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from headrace.foundation.durable_files import sync_directory
from headrace.interfaces.state_store import ReadableStateStore
from headrace_contract import ReadableStateStoreContract
from headrace_light import state_directory
from headrace_light.state_directory import DirectoryStateSettings, DirectoryStateStore


class TestDirectoryStateStore(ReadableStateStoreContract):
    """A file for each version."""

    def make_store(self) -> ReadableStateStore:
        return DirectoryStateStore(DirectoryStateSettings(path=str(self.tmp_path / "state")))


@pytest.mark.parametrize(
    "start",
    [lambda store: list(store.load("s", 1)), lambda store: store.go_on_from("s", 1)],
    ids=["load", "go_on_from"],
)
def test_removed_versions_of_an_unfinished_checkpoint_stay_removed_when_the_power_fails(
    start: Callable[[DirectoryStateStore], object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Removals last from the next sync of their directory on; the next checkpoint uses the same number again."""
    store = DirectoryStateStore(DirectoryStateSettings(path=str(tmp_path / "state")))
    for version in (1, 2):
        store.save("s", version, b"state", snapshot=True)
    synced: list[list[str]] = []

    def watched(directory: Path) -> None:
        synced.append(sorted(os.listdir(directory)))
        sync_directory(directory)

    monkeypatch.setattr(state_directory, "sync_directory", watched)
    start(store)
    assert synced == [[f"{1:020d}.snapshot"]]
    start(store)
    assert len(synced) == 1, "nothing was removed"
