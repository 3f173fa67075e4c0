"""Networks, user agents, URLs and places together: the same rows in Python, YAML and SQL, on light, its workers and Spark."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import headrace as hr
import pytest
from headrace.interfaces.language import language
from test_functions import BERLIN, PHONE, write_database

LINES = [
    '192.0.2.7 - - [15/Jan/2026:10:23:45 +0100] "GET /cart?shop=7&q=%C3%A9 HTTP/1.1" 200 512 '
    f'"https://ann@shop.example.org:8443/a?x=1#top" "{PHONE}"',
    '10.0.0.7 - - [15/Jan/2026:10:23:46 +0100] "GET /health HTTP/1.1" 200 2 "-" "curl/8.5.0"',
    '2001:db8::7 - - [15/Jan/2026:10:23:47 +0100] "POST /cart HTTP/1.1" 201 - "https://[2001:db8::1]/" "-"',
    '203.0.113.9 - - [15/Jan/2026:10:23:48 +0100] "\\x16\\x03" 400 150 "-" "no such browser é"',
    'host.example.org - - [15/Jan/2026:10:23:49 +0100] "GET / HTTP/1.0" 200 1 "not a url" "curl/8.5.0"',
    "no request",
]  # fmt: skip
#: The columns by their expressions, in which CITY, OWN and BAD stand for files.
COLUMNS = {
    "clientip": "clientip",
    "city": "geoip(clientip, 'CITY').city",
    "asn": "geoip(clientip, 'CITY').asn",
    "record": "mmdb_record(clientip, 'CITY')",
    "browser": "parse_user_agent(agent).browser",
    "device": "parse_user_agent(agent).device",
    "inside": "ip_in_networks(clientip, '10.0.0.0/8, 2001:db8::/48')",
    "listed": "ip_in_network_file(clientip, 'OWN')",
    "site": "parse_url(referrer, 'HOST')",
    "anchor": "parse_url(referrer, 'REF')",
    "shop": "parse_url(concat('http://x', request), 'QUERY', 'shop')",
}
EXPECTED = [
    {"clientip": "10.0.0.7", "browser": "curl", "inside": True, "listed": False},
    {"clientip": "192.0.2.7", "city": "Berlin", "browser": "Mobile Safari", "device": "iPhone", "inside": False, "listed": True,
     "site": "shop.example.org", "anchor": "top", "shop": "7"},
    {"clientip": "2001:db8::7", "asn": 64500, "inside": True, "listed": True, "site": "[2001:db8::1]"},
    {"clientip": "203.0.113.9", "inside": False, "listed": False},
    {"clientip": "host.example.org", "browser": "curl"},
]  # fmt: skip
RUNS = [
    pytest.param("light", {}, id="light"),
    pytest.param("light", {"workers": 2}, id="workers"),
    pytest.param("spark", {}, id="spark", marks=[pytest.mark.slow, pytest.mark.spark]),
]


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "access.log").write_text("\n".join(LINES) + "\n")
    (tmp_path / "own.txt").write_text("192.0.2.0/28\n2001:db8::/32  # documentation\n")
    write_database(
        tmp_path / "city.mmdb",
        {"192.0.2.0/24": BERLIN, "2001:db8::/32": {"autonomous_system_number": 64500}},
    )
    return tmp_path


def expressions(place: Path) -> dict[str, str]:
    """Return the expressions with the files in them."""
    files = {"CITY": place / "city.mmdb", "OWN": place / "own.txt"}
    made = dict(COLUMNS)
    for sign, path in files.items():
        made = {name: text.replace(f"'{sign}'", f"'{path}'") for name, text in made.items()}
    return made


def python_job(place: Path) -> hr.Job:
    lines = hr.stream("tests", "together").from_file(str(place / "access.log"), format="nginx-access")
    found: hr.Job = lines.select(**expressions(place)).to_file(str(place / "out"), format="json")
    return found


def yaml_job(place: Path) -> hr.Job:
    columns = "\n".join(f"      - {text} AS {name}" for name, text in expressions(place).items())
    (place / "job.yaml").write_text(
        f"name: together\nsources:\n  lines: {{connector: file, path: {place}/access.log, format: nginx-access}}\nsteps:\n"
        f"  - select:\n{columns}\nsinks:\n  out: {{connector: file, path: {place}/out, format: json}}\n"
        f"dead_letters: {{connector: file, path: {place}/bad, format: json}}\n"
    )
    found: hr.Job = language("yaml").job(str(place / "job.yaml"))
    return found


def sql_job(place: Path) -> hr.Job:
    types = {"asn": "BIGINT", "inside": "BOOLEAN", "listed": "BOOLEAN"}
    columns = ", ".join(f"`{name}` {types.get(name, 'STRING')}" for name in COLUMNS)
    selected = ", ".join(f"{text} AS `{name}`" for name, text in expressions(place).items())
    text = f"""
        CREATE TABLE visits (clientip STRING, request STRING, referrer STRING, agent STRING)
            WITH ('connector' = 'filesystem', 'path' = '{place}/access.log', 'format' = 'nginx-access');
        CREATE TABLE enriched ({columns}) WITH ('connector' = 'filesystem', 'path' = '{place}/out', 'format' = 'json');
        INSERT INTO enriched SELECT {selected} FROM visits;
    """  # noqa: S608 - the texts are of this module
    found: hr.Job = hr.sql(text)
    return found


def rows(place: Path) -> list[dict[str, Any]]:
    found = [json.loads(line) for part in place.rglob("*.json") for line in part.read_text().splitlines()]
    kept = [{name: value for name, value in row.items() if value is not None} for row in found]
    return sorted(kept, key=lambda row: str(row["clientip"]))


@pytest.mark.parametrize(("backend", "options"), RUNS)
@pytest.mark.parametrize("job", [python_job, yaml_job, sql_job])
def test_the_same_rows(job: Any, backend: Any, options: dict[str, Any], place: Path) -> None:
    job(place).run(backend, show_progress=False, **options)
    found = rows(place / "out")
    records = [json.loads(row.pop("record")) for row in found if "record" in row]
    assert found == EXPECTED
    assert [sorted(each) for each in records] == [sorted(BERLIN), ["autonomous_system_number"]]
