"""How many changes one core decodes: each format of changes beside plain json, over the same rows.

    python -m benchmarks.change_formats [--rounds 5]

CPU seconds of this process, best of the rounds; the formats take turns in each round. Half of the changes are updates (two rows), so
records and rows per second differ.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from collections.abc import Callable, Sequence
from typing import Any

import headrace as hr
from headrace.flow.messages import Bodies
from headrace.interfaces.codec import Decoder
from headrace.interfaces.registry import default_registry

SCHEMA = hr.Schema.of(
    {
        "id": "int64", "name": "string", "customer": "string", "amount": "decimal(10, 2)", "pieces": "int32", "price": "float64",
        "note": "string", "at": "timestamp",
    }
)  # fmt: skip
COUNT = 20_000
_BATCH = 10_000
_SOURCE = {
    "version": "2.7.0.Final", "connector": "mysql", "name": "shop", "ts_ms": 1_589_362_210_000, "snapshot": "false", "db": "inventory",
    "sequence": None, "table": "orders", "server_id": 223_344, "gtid": None, "file": "mysql-bin.000003", "pos": 484, "row": 0,
    "thread": 7, "query": None,
}  # fmt: skip


def row(number: int, chance: random.Random) -> dict[str, Any]:
    return {
        "id": number, "name": f"item {number % 1000}", "customer": f"c{number % 5000}", "amount": f"{chance.randrange(10**5) / 100:.2f}",
        "pieces": number % 7, "price": chance.random() * 100, "note": "the quick brown fox " * 2,
        "at": f"2026-01-01T00:00:{number % 60:02d}.123Z",
    }  # fmt: skip


def _debezium(number: int, new: dict[str, Any]) -> dict[str, Any]:
    operation = ("c", "u", "u", "d")[number % 4]
    return {
        "before": None if operation == "c" else {**new, "pieces": 9}, "after": None if operation == "d" else new, "source": _SOURCE,
        "op": operation, "ts_ms": 1_589_362_210_001, "transaction": None,
    }  # fmt: skip


def _canal(number: int, new: dict[str, Any]) -> dict[str, Any]:
    kind = ("INSERT", "UPDATE", "UPDATE", "DELETE")[number % 4]
    return {
        "data": [{name: str(value) for name, value in new.items()}], "database": "inventory", "es": 1_589_373_560_000, "id": 9,
        "isDdl": False, "mysqlType": dict.fromkeys(new, "varchar(20)"), "old": [{"pieces": "9"}] if kind == "UPDATE" else None,
        "pkNames": ["id"], "sql": "", "sqlType": dict.fromkeys(new, 12), "table": "orders", "ts": 1_589_373_560_798, "type": kind,
    }  # fmt: skip


def _maxwell(number: int, new: dict[str, Any]) -> dict[str, Any]:
    kind = ("insert", "update", "update", "delete")[number % 4]
    body = {
        "database": "shop",
        "table": "orders",
        "type": kind,
        "ts": 1_596_684_893,
        "xid": 7128,
        "commit": True,
        "data": new,
    }
    return {**body, "old": {"pieces": 9}} if kind == "update" else body


def _ogg(number: int, new: dict[str, Any]) -> dict[str, Any]:
    of = _debezium(number, new)
    return {
        "table": "OGG.ORDERS", "op_type": {"c": "I", "u": "U", "d": "D"}[of["op"]], "op_ts": "2020-05-13 17:39:35.766000",
        "current_ts": "2020-05-13T17:39:35.766000", "pos": "00000000000000002561", "primary_keys": ["id"], "before": of["before"],
        "after": of["after"],
    }  # fmt: skip


BODIES: dict[str, Callable[[int, dict[str, Any]], dict[str, Any]]] = {
    "json": lambda _, new: new,
    "debezium-json": _debezium,
    "canal-json": _canal,
    "maxwell-json": _maxwell,
    "ogg-json": _ogg,
    "changelog-json": lambda number, new: {"op": ("+I", "-U", "+U", "-D")[number % 4], "data": new},
}


def decoder_of(format: str) -> Decoder:
    kind = default_registry().find("codec", format)
    found: Decoder = kind(kind.Settings.of({}, plugin=format)).record_decoder(SCHEMA)
    return found


def decoded(decoder: Decoder, batches: Sequence[Bodies]) -> tuple[float, int]:
    """Return the CPU seconds, and how many rows there were."""
    begun, count = time.process_time(), 0
    for batch in batches:
        found = decoder.decode(batch)
        assert not found.bad, found.bad[0].reason
        count += found.frame.height
    return time.process_time() - begun, count


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    chance = random.Random(1)
    rows = [row(number, chance) for number in range(COUNT)]
    decoders = {format: decoder_of(format) for format in BODIES}
    batches: dict[str, list[Bodies]] = {}
    sizes: dict[str, float] = {}
    for format, body in BODIES.items():
        bodies = [json.dumps(body(number, new), separators=(",", ":")).encode() for number, new in enumerate(rows)]
        sizes[format] = sum(map(len, bodies)) / COUNT
        batches[format] = [Bodies.of(bodies[at : at + _BATCH]) for at in range(0, COUNT, _BATCH)]
    best: dict[str, tuple[float, int]] = {}
    for _ in range(rounds):
        for format, decoder in decoders.items():
            best[format] = min(best.get(format, (float("inf"), 0)), decoded(decoder, batches[format]))
    print("| format | bytes per record | records/s | rows/s |\n|---|---|---|---|")
    for format, (seconds, count) in best.items():
        print(f"| `{format}` | {sizes[format]:.0f} | {COUNT / seconds:,.0f} | {count / seconds:,.0f} |")


if __name__ == "__main__":
    main()
