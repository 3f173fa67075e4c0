"""How test processes share servers, and what is left when one of them is killed. MariaDB stands for all servers."""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.servers import holders
from tests.servers.directories import locked, run_directory
from tests.servers.errors import ServerStartError, SharedServerError
from tests.servers.mysql import MySQLOptions, MySQLServer
from tests.servers.ports import release_ports, reserve_ports
from tests.servers.processes import ProcessGroup
from tests.servers.programs import find_program
from tests.servers.sharing import destroy_orphans, shared_server

ROOT = Path(__file__).parents[2]

# Another test process of the same run: tells the server's port and keeps the server until its standard input ends.
OTHER_PROCESS = """
import sys
from tests.servers.mysql import MySQLServer
from tests.servers.sharing import shared_server
with shared_server(MySQLServer, "shared") as server:
    print(server.port, server.directory, flush=True)
    sys.stdin.read()
"""

NEEDS_A_PROGRAM = """
import os
from tests.servers.errors import MissingProgramError
from tests.servers.programs import require_program
if os.getuid() == 0:
    os.setuid(65534)
try:
    require_program("no-such-program", "no-such-package")
except MissingProgramError as error:
    print(error)
"""


@pytest.fixture
def run_name(monkeypatch: pytest.MonkeyPatch) -> str:
    """A run of its own for the test, as if pytest-xdist had started it."""
    name = secrets.token_hex(8)
    monkeypatch.setenv("PYTEST_XDIST_TESTRUNUID", name)
    return name


@contextmanager
def other_process() -> Iterator[tuple[subprocess.Popen[str], int, Path]]:
    """A second process that uses the server, with the port and the directory that it saw."""
    command = [sys.executable, "-c", OTHER_PROCESS]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        assert process.stdout
        port, directory = process.stdout.readline().split()
        yield process, int(port), Path(directory)


@pytest.mark.servers
class TestSharing:
    """One server for all processes of a run."""

    def test_last_process_removes_the_server(self, run_name: str) -> None:
        """Two processes see one server; it outlives the one that started it, and nothing outlives the other."""
        with other_process() as (process, port, directory):
            with shared_server(MySQLServer, "shared") as server:
                assert (server.port, server.directory) == (port, directory)
                process.communicate()
                assert process.returncode == 0
                assert server.is_running()
            assert not server.is_running()
        assert not (run_directory() / run_name).exists()

    def test_nobody_stops_a_server_under_the_others(self, run_name: str) -> None:
        """Stopping and killing is refused while another process uses the server, and allowed afterwards."""
        with shared_server(MySQLServer, "shared") as server:
            with other_process() as (process, _, _):
                for end in (server.stop, server.kill):
                    with pytest.raises(SharedServerError, match=str(process.pid)):
                        end()
            assert server.stop()

    def test_orphans_are_removed(self, run_name: str) -> None:
        """A killed test process cannot stop its server; the next one does."""
        with other_process() as (process, _, directory):
            process.kill()
        assert ProcessGroup(directory).is_alive()
        destroy_orphans()
        assert not directory.exists()
        assert not (run_directory() / run_name).exists()

    def test_orphan_without_description_is_removed(self, run_name: str) -> None:
        """Also one whose process was killed before it could write anything but its own name."""
        directory = run_directory() / run_name / "early"
        directory.mkdir(parents=True)
        reserved = reserve_ports(1, str(directory))
        (directory / "holders.json").write_text(f"[[{os.getpid()}, 0]]")  # our id, but another process's start time
        assert holders.are_all_gone(directory)
        destroy_orphans()
        assert not directory.exists()
        assert f"{reserved}" not in (run_directory() / "ports.json").read_text()

    def test_a_server_that_does_not_start_says_why(self, run_name: str) -> None:
        """The error carries the end of the log, and nothing is left behind."""
        options = MySQLOptions(config={"no-such-option": "1"})
        with pytest.raises(ServerStartError, match="no-such-option"), shared_server(MySQLServer, "broken", options):
            pass
        assert not (run_directory() / run_name).exists()


class TestPorts:
    """Reserved ports."""

    def test_reserved_ports_are_not_given_twice(self, tmp_path: Path) -> None:
        """Neighbours for one owner, apart from those of another, until they are given back."""
        mine, yours = f"{tmp_path}/mine", f"{tmp_path}/yours"
        try:
            first = set(range(start := reserve_ports(3, mine), start + 3))
            second = set(range(start := reserve_ports(3, yours), start + 3))
            assert first.isdisjoint(second)
        finally:
            release_ports(mine)
            release_ports(yours)
        assert str(tmp_path) not in (run_directory() / "ports.json").read_text()


class TestLock:
    """The lock between processes."""

    def test_lock_file_may_be_unlinked_by_its_holder(self, tmp_path: Path) -> None:
        """Who comes next makes a new file; there are never two holders."""
        path = tmp_path / "lock"
        with locked(path):
            path.unlink()
        with locked(path):
            assert path.exists()


class TestPrograms:
    """Programs that the servers need."""

    def test_ordinary_user_is_told_what_to_install(self) -> None:
        """Without root's rights nothing is installed; the error names the command."""
        command = [sys.executable, "-c", NEEDS_A_PROGRAM]
        done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
        assert "apt-get install -y --no-install-recommends no-such-package" in done.stdout

    def test_daemons_are_found_off_the_path(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """An ordinary user's PATH lacks the directories of daemons."""
        monkeypatch.setenv("PATH", "/nowhere")
        assert find_program("ldconfig")


def test_fresh_names_are_valid_everywhere(fresh_name: Callable[[str], str]) -> None:
    """No two are equal, none is longer than a database's name may be, all are plain words."""
    names = {fresh_name("a" * length) for length in (1, 20, 70)} | {fresh_name("topic") for _ in range(20)}
    assert len(names) == 23
    for name in names:
        assert name.isidentifier()
        assert name == name.lower()
        assert len(name) <= 60
