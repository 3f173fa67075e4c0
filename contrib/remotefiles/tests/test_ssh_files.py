"""Files of OpenSSH's server: followed while they grow and rotate, through a server that is started again, with known hosts only."""

from __future__ import annotations

import gzip
import os
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import headrace as hr
import pytest
from headrace_file import FileSource, FileSourceSettings

from tests.eventually import eventually
from tests.remote_servers import SshServer

pytest.importorskip("paramiko")


@pytest.fixture(scope="module")
def ssh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SshServer]:
    server = SshServer(tmp_path_factory.mktemp("ssh"))
    yield server
    server.stop()


def source(ssh: SshServer, path: str, **options: Any) -> FileSource:
    storage = {"key_filename": str(ssh.key), "known_hosts": str(ssh.known_hosts), **options.pop("storage_options", {})}
    given = {"path": f"{ssh.url}{path}", "list_interval": 0, "rotate_wait": 0, "storage_options": storage, **options}
    return FileSource(FileSourceSettings.of(given, plugin="file"))


def read(reader: hr.Reader) -> list[bytes]:
    raw = reader.poll(1_000, timedelta(0))
    return [] if raw is None else list(raw.bodies or ())


def test_a_log_that_grows_and_rotates(ssh: SshServer, tmp_path: Path) -> None:
    log = tmp_path / "app.log"
    log.write_bytes(b"1\n2\n")
    made = source(ssh, f"{tmp_path}/*.log")
    [queue] = made.queues()
    assert queue.name == f"{ssh.url}{log}"
    reader = made.open(queue, hr.EARLIEST)
    assert read(reader) == [b"1", b"2"]
    with log.open("ab") as file:
        file.write(b"3\nhalf")
    made.queues()
    assert read(reader) == [b"3"]
    with log.open("ab") as file:
        file.write(b" 4\n5\n")
    log.rename(tmp_path / "app.log.1")
    (tmp_path / "app.log.1.gz").write_bytes(gzip.compress((tmp_path / "app.log.1").read_bytes(), mtime=0))
    (tmp_path / "app.log.1").unlink()
    os.utime(tmp_path / "app.log.1.gz", (1, 1))
    log.write_bytes(b"6\n")
    found: list[bytes] = []

    def all_of_them() -> bool:
        made.queues()
        found.extend(read(reader))
        return len(found) >= 3

    eventually(all_of_them, "the rotated log is read to its end, and then the new one")
    assert found == [b"half 4", b"5", b"6"]
    made.close()


def test_a_server_that_is_started_again(ssh: SshServer, tmp_path: Path) -> None:
    log = tmp_path / "app.log"
    log.write_bytes(b"1\n")
    made = source(ssh, str(log))
    [queue] = made.queues()
    reader = made.open(queue, hr.EARLIEST)
    assert read(reader) == [b"1"]
    ssh.stop()
    with log.open("ab") as file:
        file.write(b"2\n")
    for _ in range(2):
        with pytest.raises(hr.RetriableError):
            made.queues()
        with pytest.raises(hr.RetriableError):
            read(reader)
    ssh.start()
    made.queues()
    assert read(reader) == [b"2"]
    made.close()


def test_unknown_servers_and_wrong_keys(ssh: SshServer, tmp_path: Path) -> None:
    (tmp_path / "nothing").touch()
    for options, message in (
        ({"known_hosts": str(tmp_path / "nothing")}, "is not in"),
        ({"key_filename": str(ssh.key.with_name("host")), "allow_agent": False, "look_for_keys": False}, "cannot list"),
    ):
        with pytest.raises(hr.JobError, match=message):
            source(ssh, str(tmp_path), storage_options=options).queues()
    with pytest.raises(hr.OptionError, match="does not accept these options"):
        source(ssh, str(tmp_path), storage_options={"keyfile": "x"}).queues()
