"""Real programs whose logs the guides read: nginx over syslog, journalctl, rsyslog and syslog-ng with the settings of the guide."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

import headrace as hr
import pytest

from tests.documentation.test_first_steps import blocks_of
from tests.documentation.test_syslog_to_elasticsearch import PAGE, free_port, listens
from tests.eventually import eventually
from tests.servers.certificates import make_certificates

_SYSTEM = "/usr/sbin:/usr/bin:/lib/systemd"


def program(name: str) -> str:
    found = shutil.which(name) or shutil.which(name, path=_SYSTEM)
    if found is None:
        pytest.skip(f"{name} is not installed")
    return found


def rows_of(directory: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for part in directory.glob("*.json") for line in part.read_text().splitlines()]


@pytest.mark.servers
def test_nginx_sends_its_requests_by_syslog(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nginx = program("nginx")
    monkeypatch.chdir(tmp_path)
    port, web = free_port(), free_port()
    texts = {name: text for _, name, text in blocks_of(PAGE)}
    said = texts["nginx.conf"].replace("logs.example.com:5514", f"127.0.0.1:{port}")
    (tmp_path / "nginx.conf").write_text(
        f"pid nginx.pid; error_log stderr; events {{}}\nhttp {{ client_body_temp_path b; proxy_temp_path p; fastcgi_temp_path f;"
        f" uwsgi_temp_path u; scgi_temp_path s;\n{said}\nserver {{ listen 127.0.0.1:{web}; location / {{ return 204; }} }} }}\n"
    )
    names: dict[str, Any] = {"hr": hr}
    exec(texts["nginx_job"].replace("5514", str(port)), names)
    running = names["requests"].to_file("out", format="json").start("light", checkpoint="state")
    try:
        command = [
            nginx,
            "-p",
            str(tmp_path),
            "-c",
            "nginx.conf",
            "-e",
            "stderr",
            "-g",
            "daemon off; master_process off;",
        ]
        with subprocess.Popen(command, cwd=tmp_path) as process:
            try:
                eventually(lambda: listens(web), "nginx listens")
                # A datagram that comes before the job listens is lost, as the guide says: requests are repeated until one has come.
                asked = urllib.request.Request(f"http://127.0.0.1:{web}/a?b=%C3%A4", headers={"User-Agent": 'a "b"'})

                def seen() -> list[dict[str, Any]]:
                    urllib.request.urlopen(asked).close()
                    return rows_of(tmp_path / "out")

                rows = eventually(seen, "a request is written", pause_seconds=0.2)
            finally:
                process.terminate()
    finally:
        running.stop()
    row = rows[0]
    assert (row["clientip"], row["request"], row["response"], row["agent"]) == (
        "127.0.0.1",
        "/a?b=%C3%A4",
        204,
        r"a \x22b\x22",
    )
    assert row["timestamp"]


@pytest.mark.servers
def test_journalctl_writes_what_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    remote, journalctl = program("systemd-journal-remote"), program("journalctl")
    monkeypatch.chdir(tmp_path)
    entries = [
        {"__REALTIME_TIMESTAMP": str(1769853600000000 + number), "__MONOTONIC_TIMESTAMP": str(number + 1),
         "_BOOT_ID": "0" * 31 + "1", "PRIORITY": "6", "_HOSTNAME": "web-1", "SYSLOG_IDENTIFIER": "sshd", "_PID": "812",
         "MESSAGE": text}
        for number, text in enumerate([
            "Accepted publickey for ida from 192.0.2.10 port 51234 ssh2: ED25519 SHA256:abc",
            "Failed password for invalid user ä b from 2001:db8::7 port 40022 ssh2",
            "Server listening on 0.0.0.0 port 22.",
        ])
    ]  # fmt: skip
    export = "\n\n".join("\n".join(f"{name}={value}" for name, value in entry.items()) for entry in entries) + "\n\n"
    subprocess.run(
        [remote, "-o", str(tmp_path / "one.journal"), "-"], input=export.encode(), check=True, capture_output=True
    )
    for written, name in (("json", "journal-json"), ("export", "journal-export")):
        found = subprocess.run(
            [journalctl, "--file", str(tmp_path / "one.journal"), "-o", written, "--all"],
            check=True,
            capture_output=True,
        )
        (tmp_path / written).mkdir()
        (tmp_path / written / "entries").write_bytes(found.stdout)
        logins = (
            hr.stream("hosts", written)
            .from_file(f"{written}/*", format=name)
            .where("SYSLOG_IDENTIFIER = 'sshd'")
            .parse_log("sshd", on="MESSAGE")
            .select("_HOSTNAME", "event", "user", "clientip")
        )
        rows = logins.collect().rows()
        assert sorted(rows) == [("web-1", "Accepted", "ida", "192.0.2.10"), ("web-1", "Failed", "ä b", "2001:db8::7")]


JOB = """
import json, sys
import headrace as hr
given = json.loads(sys.argv[1])
(hr.stream("hosts", "logs").from_syslog(buffer="buffer", format="syslog", schema={"app": "string", "message": "string"}, **given)
   .to_file("out", format="json").start("light", checkpoint="state", checkpoint_interval="50 ms").wait())
"""


def send_while_the_job_is_killed(place: Path, taken: int, options: dict[str, Any], daemon: list[str]) -> None:
    """A program forwards messages to a job: some come while it runs, some while it is away, some when it runs again."""
    (place / "job.py").write_text(JOB)
    command = [sys.executable, "job.py", json.dumps(options)]

    def seen() -> set[str]:
        return {row["message"] for row in rows_of(place / "out")}

    with (place / "log").open("ab") as log:
        job = subprocess.Popen(command, cwd=place, stderr=log)
        with subprocess.Popen(daemon, cwd=place, stderr=log) as program:
            try:
                eventually(lambda: listens(taken), "it listens", shown=(place / "log").read_text)
                with socket.create_connection(("127.0.0.1", taken)) as sender:

                    def send(*texts: str) -> None:
                        sender.sendall(b"".join(f"<13>1 - h app - - - {text}\n".encode() for text in texts))

                    send(*(f"before {n}" for n in range(50)))
                    eventually(lambda: "before 49" in seen(), "messages come", shown=(place / "log").read_text)
                    job.kill()
                    job.wait()
                    send(*(f"away {n}" for n in range(50)))
                    job = subprocess.Popen(command, cwd=place, stderr=log)
                    eventually(lambda: "away 49" in seen(), "what came meanwhile", shown=(place / "log").read_text)
                    send("after")
                    eventually(lambda: "after" in seen(), "it goes on", shown=(place / "log").read_text)
            finally:
                program.terminate()
                job.kill()
                job.wait()
    assert {f"before {n}" for n in range(50)} <= seen()
    # Over plain TCP what was under way when the connection broke may be lost, as the guide says.
    assert len([text for text in seen() if text.startswith("away")]) > 25


@pytest.mark.servers
@pytest.mark.parametrize("name", ["rsyslog", "rsyslog-tls"])
def test_rsyslog_with_the_settings_of_the_guide(tmp_path: Path, name: str) -> None:
    daemon, taken, port = program("rsyslogd"), free_port(), free_port()
    text = {name: text for _, name, text in blocks_of(PAGE)}[name]
    files = make_certificates(tmp_path / "certificates")
    options: dict[str, Any] = {"tcp_port": port}
    if name == "rsyslog-tls":
        if not any(
            Path(place, "lmnsd_gtls.so").exists()
            for place in ("/usr/lib/x86_64-linux-gnu/rsyslog", "/usr/lib64/rsyslog")
        ):
            pytest.skip("rsyslog-gnutls is not installed")
        options = {"tls_port": port, "ssl_certificate": str(files.server), "ssl_key": str(files.server_key)}
        text = text.replace("/etc/ssl/certs/logs-ca.pem", str(files.authority))
        text = text.replace('Peers="logs.example.com"', 'Peers="localhost"')
    said = text.replace("logs.example.com", "127.0.0.1").replace("5514", str(port)).replace("6514", str(port))
    assert said.count(str(port)) == 1
    said = said.replace(
        "action.resumeRetryCount", 'action.resumeInterval="1" action.resumeRetryCount'
    )  # else 30 seconds
    own = f'global(workDirectory="{tmp_path}")\nmodule(load="imtcp")\ninput(type="imtcp" address="127.0.0.1" port="{taken}")\n'
    (tmp_path / "rsyslog.conf").write_text(own + said)
    command = [daemon, "-n", "-f", str(tmp_path / "rsyslog.conf"), "-i", str(tmp_path / "pid")]
    send_while_the_job_is_killed(tmp_path, taken, options, command)


@pytest.mark.servers
def test_syslog_ng_with_the_settings_of_the_guide(tmp_path: Path) -> None:
    daemon, taken, port = program("syslog-ng"), free_port(), free_port()
    text = {name: text for _, name, text in blocks_of(PAGE)}["syslog-ng"]
    said = (
        text.replace("logs.example.com", "127.0.0.1")
        .replace("5514", str(port))
        .replace("time-reopen(5)", "time-reopen(1)")
    )
    own = f"""@version: 3.35
options {{ keep-hostname(yes); stats-freq(0); }};
source s_src {{ network(ip("127.0.0.1") port({taken}) transport("tcp") flags(syslog-protocol)); }};
"""
    (tmp_path / "syslog-ng.conf").write_text(own + said)
    files = [f"--{name}={tmp_path / name}" for name in ("persist-file", "pidfile", "control")]
    command = [daemon, "-F", "--no-caps", "-f", str(tmp_path / "syslog-ng.conf"), *files]
    send_while_the_job_is_killed(tmp_path, taken, {"tcp_port": port}, command)
