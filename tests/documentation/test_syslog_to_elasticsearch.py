"""docs/syslog-to-elasticsearch.md, followed to the letter, with a real Elasticsearch on another port."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from tests.documentation.test_first_steps import blocks_of, shell, write_files
from tests.eventually import eventually
from tests.servers.elasticsearch import ElasticsearchServer

PAGE = "docs/syslog-to-elasticsearch.md"


def free_port() -> int:
    """Return a port that is free for TCP and for UDP."""
    with socket.create_server(("127.0.0.1", 0)) as found, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other:
        other.bind(found.getsockname())
        return int(found.getsockname()[1])


def listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port)).close()
    except OSError:
        return False
    return True


def test_what_keeps_bad_records_is_installed() -> None:
    """Without headrace-file the first bad record stops the job: the guide promises that it does not."""
    page = (Path(__file__).parents[2] / PAGE).read_text(encoding="utf-8")
    [installed] = [line for line in page.splitlines() if line.startswith("pip install")]
    assert " ./connectors/file " in installed


@pytest.mark.servers
@pytest.mark.skipif(not (shutil.which("logger") and shutil.which("curl")), reason="logger or curl is not installed")
def test_the_guide_works_as_printed(tmp_path: Path, elasticsearch_server: ElasticsearchServer) -> None:
    port = free_port()
    blocks = [
        (kind, name, text.replace("http://localhost:9200", elasticsearch_server.url).replace("5514", str(port)))
        for kind, name, text in blocks_of(PAGE)
    ]
    named = {name: text for _, name, text in blocks}
    write_files(blocks, tmp_path)
    command = [str(Path(sys.executable).with_name("headrace")), *named["run"].split()[1:]]

    def search(text: str) -> list[dict[str, object]]:
        with urllib.request.urlopen(f"{elasticsearch_server.url}/logs-*/_search?{text}") as answer:
            return [hit["_source"] for hit in json.load(answer)["hits"]["hits"]]

    def count() -> int:
        urllib.request.urlopen(f"{elasticsearch_server.url}/logs-*/_refresh", data=b"").close()
        return len(search("size=100"))

    job = subprocess.Popen(command, cwd=tmp_path, env={**os.environ, "NO_COLOR": "1"})
    try:
        eventually(lambda: listens(port), "the job listens")
        shell(named["send"], tmp_path)
        eventually(lambda: count() == 3, "three messages are there", shown=lambda: search("size=100"))
        assert json.loads(shell(named["find"], tmp_path)) == json.loads(named["found"])
        letters = tmp_path / "state" / "dead-letters"
        eventually(lambda: "this is no syslog" in _texts(letters), "a dead letter", shown=lambda: _texts(tmp_path))
        job.send_signal(signal.SIGKILL)
        job.wait()
        job = subprocess.Popen(command, cwd=tmp_path, env={**os.environ, "NO_COLOR": "1"})
        eventually(lambda: listens(port), "the job listens again")
        shell(named["send"], tmp_path)
        eventually(lambda: count() == 6, "three more messages are there", shown=lambda: search("size=100"))
    finally:
        job.send_signal(signal.SIGKILL)
        job.wait()
        request = urllib.request.Request(f"{elasticsearch_server.url}/logs-*", method="DELETE")
        urllib.request.urlopen(request).close()
        templates = urllib.request.Request(
            f"{elasticsearch_server.url}/_index_template/headrace-logs*", method="DELETE"
        )
        urllib.request.urlopen(templates).close()


def _texts(directory: Path) -> str:
    return "".join(path.read_text(errors="replace") for path in directory.rglob("*.json") if path.is_file())
