"""JSON bodies to columns: headrace's decoder with and without its kernel beside other parsers, and whole jobs with both.

    python -m benchmarks.json_decoding [--messages 400000]                     # everything, as JSON lines; keep the machine quiet
    python -m benchmarks.json_decoding decoding WAY DIRECTORY                  # one way, in this process, as JSON
    python -m benchmarks.json_decoding job where|rules-41|rules-1000 DIRECTORY # one job on light, second of two runs

Security events of about 650 bytes (``demo/security_events.py``). Decoding: five of the columns, in batches of 20,000 bodies, best of seven
passes. Jobs: from two files to files, everything from building the job to the last row on disk. Each measurement is a process of its
own on one core, ``orjson.loads`` of the same bodies beside it; the figure is CPU time of orjson by CPU time of the whole work.
Others need not know what headrace promises: a bad record among good ones, and a value of another type, end the parse or become NULL there.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.measure import measure
from benchmarks.rule_sets import COLUMNS, rule_set
from benchmarks.stateless import COLUMNS as WHERE_COLUMNS
from benchmarks.stateless import PREDICATE

_BATCH = 20_000
_PASSES = 7
WAYS = ("kernel", "plain", "polars", "pyarrow", "simdjson", "orjson")
JOBS = ("where", "rules-41", "rules-1000")


def _lines(directory: Path) -> list[bytes]:
    return [line for file in sorted(directory.glob("events-*.ndjson")) for line in file.read_bytes().splitlines()]


def _decode(way: str) -> Callable[[list[bytes]], Any]:
    """Return what decodes a batch of bodies. Raises ImportError for a package that is not installed."""
    if way in ("kernel", "plain"):
        return _headrace(way)
    if way == "polars":
        import polars as pl

        schema = {"host": pl.String, "user": pl.String, "cmdline": pl.String, "ts": pl.String, "exit_code": pl.Int64}
        return lambda bodies: pl.read_ndjson(io.BytesIO(b"\n".join(bodies)), schema=schema)
    if way == "pyarrow":
        import pyarrow as pa
        import pyarrow.json as pj

        texts = [(name, pa.string()) for name in ("host", "user", "cmdline", "ts")]
        options = pj.ParseOptions(
            explicit_schema=pa.schema([*texts, ("exit_code", pa.int64())]), unexpected_field_behavior="ignore"
        )
        reading = pj.ReadOptions(use_threads=False, block_size=1 << 26)
        return lambda bodies: pj.read_json(io.BytesIO(b"\n".join(bodies)), reading, options)
    if way == "simdjson":
        import simdjson

        parser, names = simdjson.Parser(), list(WHERE_COLUMNS)

        def columns(bodies: list[bytes]) -> Any:
            import polars as pl

            rows = []
            for body in bodies:
                found = parser.parse(body)
                rows.append([found.get(name) for name in names])
                del found  # the parser is used again
            return pl.DataFrame(rows, schema=names, orient="row")

        return columns
    import orjson

    return lambda bodies: [orjson.loads(body) for body in bodies]


def _headrace(way: str) -> Callable[[list[bytes]], Any]:
    if way == "plain":
        os.environ["HEADRACE_DECODERS"] = "plain"
    from headrace.codecs.json import JsonCodec
    from headrace.flow.messages import Bodies
    from headrace.flow.schema import Schema

    decoder = JsonCodec().decoder(Schema.of(WHERE_COLUMNS))
    assert (type(decoder).__name__ == "KernelJsonDecoder") == (way == "kernel"), "headrace-turbo has no kernel here"
    return lambda bodies: decoder.decode(Bodies.of(bodies)).frame


def decoding(way: str, directory: Path) -> dict[str, Any]:
    """Return the CPU seconds of decoding all bodies in one way: those of the fastest pass."""
    decode = _decode(way)
    lines = _lines(directory)
    batches = [lines[start : start + _BATCH] for start in range(0, len(lines), _BATCH)]
    best = float("inf")
    for _ in range(_PASSES):
        begun = time.process_time()
        for batch in batches:
            decode(batch)
        best = min(best, time.process_time() - begun)
    return {"messages": len(lines), "cpu_seconds": best, "megabytes": sum(map(len, lines)) / 1e6}


def job(name: str, directory: Path) -> dict[str, Any]:
    """Run a job twice on light; return the CPU seconds of the second run, and those of orjson for the same bodies."""
    import headrace as hr
    import orjson

    lines = _lines(directory)
    baseline = float("inf")
    for _ in range(3):
        begun = time.process_time()
        for line in lines:
            orjson.loads(line)
        baseline = min(baseline, time.process_time() - begun)
    taken = 0.0
    for attempt in range(2):
        out = directory / f"out-{name}-{attempt}-{os.getpid()}"
        stream = hr.stream("benchmark", name).from_file(
            f"{directory}/events-*.ndjson", format="json", schema=WHERE_COLUMNS if name == "where" else COLUMNS
        )
        begun = time.process_time()
        if name == "where":
            chosen = stream.where(PREDICATE).select("host", "ts", cmd="lower(cmdline)")
        else:
            chosen = stream.rules(rule_set("selective", int(name.partition("-")[2])))
        report = chosen.to_file(out, format="json").run("light", show_progress=False)
        taken = time.process_time() - begun
        assert report.records_read == len(lines)
        shutil.rmtree(out)
    return {"messages": len(lines), "cpu_seconds": taken, "orjson_cpu_seconds": baseline}


def everything(messages: int) -> list[dict[str, Any]]:
    """Measure all ways and jobs, print a line of each as it is known, and return them."""
    from demo.security_events import write

    found: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="headrace-benchmark-") as place:
        write(Path(place), messages, 2, 7, 0)
        for way in WAYS:
            try:
                taken = measure("benchmarks.json_decoding", "decoding", way, place, cores=[0], environment=_ONE_THREAD)
            except RuntimeError as error:
                if "ModuleNotFoundError" not in str(error):
                    raise
                print(f"{way}: not installed", file=sys.stderr)
                continue
            _tell(found, {"decoding": way, **taken.figures})
        for name in JOBS:
            for decoders in ("", "plain"):
                taken = measure(
                    "benchmarks.json_decoding", "job", name, place, cores=[0],
                    environment={**_ONE_THREAD, "HEADRACE_DECODERS": decoders},
                )  # fmt: skip
                ratio = taken.figures["orjson_cpu_seconds"] / taken.figures["cpu_seconds"]
                _tell(found, {"job": name, "decoder": decoders or "kernel", "of_orjson": ratio, **taken.figures})
    return found


_ONE_THREAD = {"POLARS_MAX_THREADS": "1"}


def _tell(found: list[dict[str, Any]], figures: dict[str, Any]) -> None:
    figures["messages_per_cpu_second"] = figures["messages"] / figures["cpu_seconds"]
    figures["load"] = os.getloadavg()[0]
    found.append(figures)
    print(json.dumps(figures), flush=True)


def main() -> None:
    if sys.argv[1:2] in (["decoding"], ["job"]):
        kind, name, directory = sys.argv[1:]
        print(json.dumps((decoding if kind == "decoding" else job)(name, Path(directory))))
        return
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=400_000)
    everything(parser.parse_args().messages)


if __name__ == "__main__":
    main()
