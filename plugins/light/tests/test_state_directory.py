"""State in a directory keeps the contract."""

from __future__ import annotations

from headrace.interfaces.state_store import ReadableStateStore
from headrace_contract import ReadableStateStoreContract
from headrace_light.state_directory import DirectoryStateSettings, DirectoryStateStore


class TestDirectoryStateStore(ReadableStateStoreContract):
    """A file for each version."""

    def make_store(self) -> ReadableStateStore:
        return DirectoryStateStore(DirectoryStateSettings(path=str(self.tmp_path / "state")))
