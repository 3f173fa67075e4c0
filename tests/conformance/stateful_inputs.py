"""The events and orders that cases with keyed state read."""

from __future__ import annotations

import json
import random
from typing import Any

SCHEMA = {"id": "int64", "key": "string", "v": "float64", "ts": "timestamp"}
ORDERS = {"order": "int64", "key": "string", "at": "timestamp"}
_SECOND = 1_000_000


def stamp(seconds: float) -> str:
    """Return a time that many seconds after midnight of a leap day, as JSON has it."""
    whole = int(seconds)
    return f"2024-02-29T{whole // 3600:02d}:{whole // 60 % 60:02d}:{whole % 60:02d}.{int(seconds * 1000) % 1000:03d}Z"


def clicks(count: int, seed: int, *, disorder_seconds: float = 4.0, first: int = 0) -> list[str]:
    """Events out of order, with NULL keys and values now and then, and gaps in which sessions end."""
    chance = random.Random(seed)
    lines = []
    for number in range(count):
        seconds = 40_000 + number * 0.7 + (number // 40) * 25 - chance.random() * disorder_seconds
        row: dict[str, Any] = {
            "id": first + number,
            "key": None if number % 17 == 5 else f"k{int(chance.paretovariate(1.2)) % 13}",
            "v": None if number % 9 == 4 else round(chance.uniform(-5, 20), 2),
            "ts": stamp(seconds),
        }
        lines.append(json.dumps(row))
    return lines


def orders(count: int, seed: int) -> list[str]:
    chance = random.Random(seed)
    return [
        json.dumps({"order": n, "key": f"k{chance.randrange(13)}", "at": stamp(40_000 + n * 1.1 + (n // 30) * 20)})
        for n in range(count)
    ]
