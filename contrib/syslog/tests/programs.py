"""Programs of syslog that tests start: rsyslog and syslog-ng as the system has them, each with files of its own."""

from __future__ import annotations

import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.eventually import eventually
from tests.servers.certificates import Certificates

#: Where Debian puts daemons; it may not be in the PATH of a user.
_PLACES = "/usr/sbin:/usr/local/sbin:/usr/bin:/usr/local/bin"


def program(name: str) -> str:
    """Return the path of a program. Skips the test where it is not installed."""
    found = shutil.which(name) or shutil.which(name, path=_PLACES)
    if found is None:
        pytest.skip(f"{name} is not installed")
    return found


def logger() -> str:
    """Return the path of util-linux's logger; those of other systems cannot send over TCP. Skips the test where it is another one."""
    path = program("logger")
    shown = subprocess.run([path, "--version"], capture_output=True, text=True, check=False).stdout
    if "util-linux" not in shown:
        pytest.skip(f"{path} is not that of util-linux")
    return path


def listens(port: int) -> bool:
    """Return whether something listens on a TCP port of this machine."""
    try:
        socket.create_connection(("127.0.0.1", port)).close()
    except OSError:
        return False
    return True


@contextmanager
def running(command: list[str], directory: Path, port: int | None) -> Iterator[subprocess.Popen[bytes]]:
    """Run a program until the block ends; begin when it listens on its port."""
    with (directory / "program.log").open("ab") as log:
        process = subprocess.Popen(command, cwd=directory, stdout=log, stderr=log)
    try:
        if port is not None:
            what = f"{command[0]} listens"
            eventually(lambda: listens(port) or _ended(process, directory), what)
        yield process
    finally:
        process.terminate()
        process.wait()


def _ended(process: subprocess.Popen[bytes], directory: Path) -> bool:
    assert process.poll() is None, (directory / "program.log").read_text(errors="replace")
    return False


@contextmanager
def rsyslog(directory: Path, text: str, port: int) -> Iterator[subprocess.Popen[bytes]]:
    """Run rsyslog with a configuration."""
    path = program("rsyslogd")
    configuration = directory / "rsyslog.conf"
    configuration.write_text(f'global(workDirectory="{directory}" maxMessageSize="64k")\n{text}')
    with running([path, "-n", "-f", str(configuration), "-i", str(directory / "pid")], directory, port) as process:
        yield process


@contextmanager
def syslog_ng(directory: Path, text: str, port: int) -> Iterator[subprocess.Popen[bytes]]:
    """Run syslog-ng with a configuration."""
    path = program("syslog-ng")
    configuration = directory / "syslog-ng.conf"
    configuration.write_text(f"@version: 3.35\noptions {{ keep-hostname(yes); stats-freq(0); }};\n{text}")
    files = [f"--{name}={directory / name}" for name in ("persist-file", "pidfile", "control")]
    with running([path, "-F", "--no-caps", "-f", str(configuration), *files], directory, port) as process:
        yield process


def forwarding_rsyslog(taken_port: int, to_port: int) -> str:
    """Return the configuration of an rsyslog that keeps messages while the receiver is away."""
    return f"""
module(load="imtcp")
input(type="imtcp" address="127.0.0.1" port="{taken_port}")
action(type="omfwd" target="127.0.0.1" port="{to_port}" protocol="tcp" TCP_Framing="octet-counted"
       template="RSYSLOG_SyslogProtocol23Format" queue.type="LinkedList" queue.size="200000"
       action.resumeRetryCount="-1" action.resumeInterval="1")
"""


def forwarding_syslog_ng(taken_port: int, to_port: int, files: Certificates) -> str:
    """Return the configuration of a syslog-ng that does the same over TLS, with a certificate of its own."""
    return f"""
source taken {{ network(ip("127.0.0.1") port({taken_port}) transport("tcp") flags(syslog-protocol) log-iw-size(10000)); }};
destination job {{ syslog("127.0.0.1" port({to_port}) transport("tls") time-reopen(1) log-fifo-size(200000)
    tls(ca-file("{files.authority}") key-file("{files.client_key}") cert-file("{files.client}") peer-verify(required-trusted))); }};
log {{ source(taken); destination(job); flags(flow-control); }};
"""
