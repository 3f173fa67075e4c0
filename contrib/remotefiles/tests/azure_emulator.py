"""Azurite, Microsoft's emulator of Azure's storage, from npm."""

from __future__ import annotations

import shutil
import socket
import subprocess
from pathlib import Path

import pytest

from tests.eventually import eventually
from tests.servers.directories import cache_directory
from tests.servers.ports import release_ports, reserve_ports

VERSION = "3.35.0"
#: The account and key that are built into the emulator, and stand in its documentation.
ACCOUNT = "devstoreaccount1"
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="


class Azurite:
    """The service for blobs. It keeps them in a directory."""

    def __init__(self, directory: Path) -> None:
        self._program = _program()
        self._directory = directory
        self._owner = f"azurite {directory}"
        self.port = reserve_ports(1, self._owner)
        self.start()

    @property
    def connection_string(self) -> str:
        address = f"http://127.0.0.1:{self.port}/{ACCOUNT}"
        return f"DefaultEndpointsProtocol=http;AccountName={ACCOUNT};AccountKey={KEY};BlobEndpoint={address};"

    def start(self) -> None:
        command = [
            str(self._program), "--silent", "--skipApiVersionCheck", "--disableTelemetry", "--blobHost", "127.0.0.1",
            "--blobPort", str(self.port), "--location", str(self._directory),
        ]  # fmt: skip
        with (self._directory / "log").open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log)
        eventually(self._listens, "azurite listens")

    def _listens(self) -> bool:
        with socket.socket() as client:
            return client.connect_ex(("127.0.0.1", self.port)) == 0

    def end(self) -> None:
        """End the process; a later ``start`` has the same blobs. (It forgets what is new if it is killed.)"""
        self._process.terminate()
        self._process.wait()

    def stop(self) -> None:
        self.end()
        release_ports(self._owner)


def _program() -> Path:
    """Return the emulator; npm installs it the first time. Skips the test where there is no npm."""
    place = cache_directory() / f"azurite-{VERSION}"
    program = place / "node_modules" / ".bin" / "azurite-blob"
    if not program.exists():
        npm = shutil.which("npm")
        if npm is None:
            pytest.skip("npm is not installed, from which Azurite comes")
        command = [npm, "install", "--silent", "--no-audit", "--no-fund", "--prefix", str(place), f"azurite@{VERSION}"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            pytest.skip(f"npm cannot install Azurite: {done.stderr[-300:]}")
    return program
