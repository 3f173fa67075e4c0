"""State in a directory keeps the contract."""

from __future__ import annotations

from headrace.interfaces.state_store import StateStore
from headrace_contract import StateStoreContract
from headrace_light.state_directory import DirectoryStateSettings, DirectoryStateStore


class TestDirectoryStateStore(StateStoreContract):
    """A file for each version."""

    def make_store(self) -> StateStore:
        return DirectoryStateStore(DirectoryStateSettings(path=str(self.tmp_path / "state")))
