"""Jobs over events that headrace was not made fast on: another generator, other fields, keys in several orders, twelve columns read.

    python -m benchmarks.holdout [--messages 400000] [--jobs where,rules-41,rules-1000,rules-10000]   # JSON lines
    python -m benchmarks.holdout job NAME FILE                                                       # one job, in this process
    python -m benchmarks.holdout first [41,1000,10000]        # CPU seconds of the first jobs over 1,000 events, in processes of their own

Events of about 650 bytes are of three kinds (logons, connections, processes), each with its own fields in its own order, with escapes,
non-Latin names, numbers, booleans, lists and nested objects that no job reads. A job runs twice in a process of its own on one core,
from a file to files, and the second run counts: CPU time of ``orjson.loads`` of the same bodies by CPU time of the whole job.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from benchmarks.measure import measure

#: The columns that every job reads; each kind of event has only some of them.
COLUMNS = {
    "EventTime": "timestamp", "EventID": "int64", "Channel": "string", "Computer": "string", "AccountName": "string",
    "IpAddress": "string", "LogonType": "int64", "Image": "string", "CommandLine": "string", "DestinationPort": "int64",
    "BytesSent": "float64", "Elevated": "boolean",
}  # fmt: skip
PREDICATE = "DestinationPort = 3389 AND BytesSent > 900000 OR lower(CommandLine) LIKE '%-enc %' AND Elevated"
_WORDS = [
    "ledger",
    "quorum",
    "harbor",
    "velvet",
    "tundra",
    "copper",
    "meadow",
    "signal",
    "lantern",
    "orchard",
    "granite",
    "falcon",
]
_NAMES = ["müller", 'o"neil', "świątek", "tanaka\\corp", "garcía", "smith", "иванов", "chen"]


def events(count: int, seed: int = 2_718) -> Iterator[dict[str, Any]]:
    """Give events, the same ones for a seed."""
    rng = random.Random(seed)
    kinds = (_logon, _connection, _process)
    for number in range(count):
        event = rng.choices(kinds, (3, 4, 3))[0](rng, number)
        event["Message"] = " ".join(rng.choices(_WORDS, k=max(1, (610 - len(json.dumps(event))) // 8)))
        yield event


def _time(number: int) -> str:
    seconds = 1_790_000_000 + number // 40
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds)) + f".{number % 1000:03d}Z"


def _address(rng: random.Random) -> str:
    return f"10.{rng.randrange(256)}.{rng.randrange(256)}.{rng.randrange(256)}"


def _logon(rng: random.Random, number: int) -> dict[str, Any]:
    return {
        "EventTime": _time(number), "Channel": "Security", "EventID": rng.choice([4624, 4625, 4634]),
        "Computer": f"dc{rng.randrange(40):02d}.{rng.choice(_WORDS)}.example",
        "Provider": {"Name": "Audit", "Guid": f"{rng.getrandbits(64):x}"},
        "AccountName": rng.choice(_NAMES), "LogonType": rng.choice([2, 3, 5, 10]), "IpAddress": _address(rng),
        "Elevated": rng.random() < 0.1, "Keywords": ["audit", rng.choice(["success", "failure"])], "RecordNumber": number,
    }  # fmt: skip


def _connection(rng: random.Random, number: int) -> dict[str, Any]:
    return {
        "Protocol": rng.choice(["tcp", "udp"]), "DestinationPort": rng.choice([53, 80, 443, 3389, 8443, rng.randrange(1024, 65_536)]),
        "SourcePort": rng.randrange(1024, 65_536), "BytesSent": round(rng.expovariate(1 / 40_000), 2), "IpAddress": _address(rng),
        "EventID": 3, "Computer": f"gw-{rng.randrange(8)}", "EventTime": _time(number), "Channel": "Network",
        "Tags": None, "Flow": {"packets": rng.randrange(10_000), "flags": {"syn": True, "fin": rng.random() < 0.5}},
    }  # fmt: skip


def _process(rng: random.Random, number: int) -> dict[str, Any]:
    image = f"C:\\Program Files\\{rng.choice(_WORDS).title()}\\{rng.choice(_WORDS)}{rng.randrange(30)}.exe"
    tail = (
        f"-enc {rng.getrandbits(96):x}"
        if rng.random() < 0.02
        else f'--config "D:\\etc\\{rng.choice(_WORDS)}.ini" --id {number}'
    )
    return {
        "Image": image, "CommandLine": f'"{image}" {tail}', "Hashes": f"SHA256={rng.getrandbits(256):064x}", "EventID": 1,
        "ParentImage": f"C:\\Windows\\System32\\{rng.choice(['svchost', 'explorer', 'services'])}.exe", "Channel": "Sysmon",
        "AccountName": rng.choice(_NAMES), "Computer": f"ws-{rng.randrange(2_000):04d}", "Elevated": rng.random() < 0.2,
        "EventTime": _time(number), "ProcessId": rng.randrange(100_000),
    }  # fmt: skip


def rules(count: int, seed: int = 31) -> list[Mapping[str, str]]:
    """Return rules as detection has them: most ask for something that normal traffic has not, some for a number."""
    rng, made, known = random.Random(seed), list[Mapping[str, str]](), set[str]()
    while len(made) < count:
        token = f"{rng.choice(_WORDS)}{rng.getrandbits(28):x}"
        text = rng.choice([
            f"CommandLine LIKE '%{token}%' AND EventID = 1",
            f"lower(Image) LIKE '%\\\\{token}.exe' AND Elevated",
            f"AccountName = 'svc-{token}' AND LogonType IN (3, 10)",
            f"Computer = '{token}' AND IpAddress LIKE '10.%'",
            f"CommandLine RLIKE '(iex|wget) .*{token}'",
            f"Channel = 'Security' AND AccountName LIKE '{token}%'",
            f"DestinationPort = {rng.randrange(65_536, 9_999_999)} AND BytesSent > 1000" if rng.random() < 0.2
            else f"Image LIKE '%{token}%' OR CommandLine LIKE '%{token} -x%'",
        ])  # fmt: skip
        if text not in known:
            known.add(text)
            made.append({"id": f"rule-{len(made)}", "expression": text})
    return made


def job(name: str, path: Path) -> dict[str, Any]:
    """Run a job twice on light; return the CPU seconds of the second run, and those of orjson for the same bodies."""
    import headrace as hr
    import orjson

    lines = path.read_bytes().splitlines()
    parsing = []
    for _ in range(3):
        begun = time.process_time()
        for line in lines:
            orjson.loads(line)
        parsing.append(time.process_time() - begun)
    taken, raw = 0.0, name.startswith("raw-")
    for attempt in range(2):
        out = path.parent / f"out-{name}-{attempt}"
        stream = hr.stream("benchmark", "holdout").from_file(path, format="json", schema=COLUMNS)
        begun = time.process_time()
        if name == "where":
            chosen = stream.where(PREDICATE).select(
                *(each for each in COLUMNS if each != "CommandLine"), cmd="lower(CommandLine)"
            )
        else:
            chosen = stream.rules(rules(int(name.rpartition("-")[2])), raw_scan=raw)
        report = chosen.to_file(out, format="json").run("light", show_progress=False)
        taken = time.process_time() - begun
        assert report.records_read == len(lines)
        assert not report.dead_letters
        shutil.rmtree(out, ignore_errors=True)
    return {"messages": len(lines), "cpu_seconds": taken, "orjson_cpu_seconds": min(parsing)}


def first(count: int, path: Path) -> dict[str, Any]:
    """Return the CPU seconds of the first and of the next job with so many rules in this process, and of what is imported before."""
    import headrace as hr
    import numpy as np  # what any program with data has imported
    import polars as pl

    assert np.arange(3).size == pl.DataFrame({"n": [1, 2, 3]}).height
    found: dict[str, Any] = {"process_polars_numpy": round(time.process_time(), 2)}
    given = rules(count)
    for name in ("first", "next"):
        out = path.parent / f"out-{name}"
        begun = time.process_time()
        stream = hr.stream("benchmark", "holdout").from_file(path, format="json", schema=COLUMNS)
        report = stream.rules(given).to_file(out, format="json").run("light", show_progress=False)
        found[name] = round(time.process_time() - begun, 3)
        assert report.records_read == 1000
        shutil.rmtree(out, ignore_errors=True)
    return found


def first_jobs(counts: list[int], runs: int = 5) -> None:
    """Print the medians of ``first`` for processes that find nothing on disk, and for those that find what another has stored."""
    with tempfile.TemporaryDirectory(prefix="headrace-benchmark-") as place:
        path = Path(place) / "events.ndjson"
        path.write_text("".join(json.dumps(event) + "\n" for event in events(1000)))
        # Modules that were compiled are read from disk, as in any installation.
        environment = {**os.environ, "PYTHONPYCACHEPREFIX": f"{place}/pycache", "PYTHONDONTWRITEBYTECODE": ""}
        for count in counts:
            for kept in (False, True):
                found = []
                for run in range(runs + 1):
                    environment["HEADRACE_CACHE"] = f"{place}/cache-{count}" if kept else f"{place}/cache-{count}-{run}"
                    command = [sys.executable, "-m", "benchmarks.holdout", "first-here", str(count), str(path)]
                    made = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE).stdout
                    found.append(json.loads(made))
                del found[0]
                medians = {
                    name: sorted(each[name] for each in found)[runs // 2]
                    for name in ("process_polars_numpy", "first", "next")
                }
                print(
                    json.dumps({"rules": count, "kept_on_disk": kept, **medians, "load": round(os.getloadavg()[0], 1)}),
                    flush=True,
                )


def main() -> None:
    if sys.argv[1:2] == ["first-here"]:
        print(json.dumps(first(int(sys.argv[2]), Path(sys.argv[3]))))
        return
    if sys.argv[1:2] == ["first"]:
        first_jobs([int(each) for each in (sys.argv[2] if len(sys.argv) > 2 else "41,1000,10000").split(",")])
        return
    if sys.argv[1:2] == ["job"]:
        print(json.dumps(job(sys.argv[2], Path(sys.argv[3]))))
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, default=400_000)
    parser.add_argument("--jobs", default="where,rules-41,raw-rules-41,rules-1000,rules-10000")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="headrace-benchmark-") as place:
        path = Path(place) / "events.ndjson"
        with path.open("w") as file:
            for event in events(given.messages):
                file.write(json.dumps(event, ensure_ascii=event["EventID"] != 1) + "\n")
        for name in given.jobs.split(","):
            figures = measure(
                "benchmarks.holdout", "job", name, str(path), cores=[0], environment={"POLARS_MAX_THREADS": "1"}
            ).figures
            print(json.dumps({
                "job": name, "of_orjson": round(figures["orjson_cpu_seconds"] / figures["cpu_seconds"], 2), **figures,
                "bytes_per_event": round(path.stat().st_size / given.messages), "load": round(os.getloadavg()[0], 1),
            }), flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
