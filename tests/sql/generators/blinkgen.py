#!/usr/bin/env python3
# ruff: noqa: UP031
"""Seeded input files (NDJSON) for the Blink-dialect cases.  blinkgen.py --dir data/blink --seed 5"""

import argparse
import json
import os
import random
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, TypeVar

T = TypeVar("T")


def ms(s: str) -> int:
    return int(datetime.strptime(s, "%Y-%m-%d %H:%M:%S").replace(tzinfo=UTC).timestamp() * 1000)


def stamp(t: int) -> str:
    return datetime.fromtimestamp(t // 1000, tz=UTC).strftime("%Y-%m-%d %H:%M:%S") + ".%03d" % (t % 1000)


def main() -> None:
    ap = argparse.ArgumentParser()
    ap.add_argument("--dir", required=True)
    ap.add_argument("--seed", type=int, default=5)
    a = ap.parse_args()
    os.makedirs(a.dir, exist_ok=True)
    r = random.Random(a.seed)

    def k(n: int) -> int:
        return int(r.random() * n)

    def pick(xs: Sequence[T]) -> T:
        return xs[k(len(xs))]

    def write(name: str, rows: Sequence[Mapping[str, Any]]) -> None:
        with open(os.path.join(a.dir, name + ".ndjson"), "w", encoding="utf-8", newline="\n") as f:
            for x in rows:
                f.write(json.dumps(x, ensure_ascii=False, separators=(",", ":")) + "\n")

    # clicks: mostly in order, some inside the 2 s bound, some late, idle gaps for sessions
    base = t = ms("2023-01-28 11:00:00")
    ev: list[tuple[int, int, int]] = []
    for i in range(1500):
        t += k(3000) if r.random() < 0.98 else 20_000 + k(60_000)
        u = r.random()
        d = 0 if u < 0.85 else k(1900) if u < 0.985 else 3000 + k(90_000)
        ev.append((t + d, i, t))
    ev.sort()
    clicks = [
        {
            "username": pick(["tom", "mack", "jack", "eva", "李雷", None]),
            "click_url": None
            if r.random() < 0.05
            else "http://%s/%s?q=%d" % (pick(["a.com", "b.cn", "c.org"]), pick(["x", "y/z", ""]), k(50)),
            "ts": stamp(x),
        }
        for _, _, x in ev
    ]
    write("user_clicks", clicks)
    write(
        "ticket",
        [
            {
                "id": i,
                "perform_id": None if r.random() < 0.05 else k(30),
                "position": pick(["shanghai", "shenzhen", "beijing", None]),
                "gmt_modified": stamp(base + i * 1000),
            }
            for i in range(1, 201)
        ],
    )
    write(
        "perform",
        [
            {"id": i, "name": "perform-%d" % i, "odeum_id": k(8), "gmt_modified": stamp(base + i * 700)}
            for i in range(25)
        ],
    )
    write("odeum", [{"id": i, "name": "odeum-%d" % i, "gmt_modified": stamp(base + i * 500)} for i in range(6)])
    write(
        "movie_ticket",
        [
            {
                "id": i,
                "purchaser_id": None if r.random() < 0.05 else 1 + k(14),
                "movie_name": pick(["Alien", "Brazil", "Casablanca"]),
                "position": pick(["shanghai", "beijing"]),
                "time": stamp(base + i * 900),
            }
            for i in range(1, 151)
        ],
    )
    people = [
        (1, "tom", "male", 16),
        (2, "mack", "male", 17),
        (3, "jack", "male", 16),
        (4, "marry", "female", 15),
        (5, "bob", "male", 18),
        (6, "john", "male", 16),
        (7, "lucy", "female", 15),
        (8, "eva", "female", 18),
        (9, "grace", "female", 17),
        (10, "anna", "female", 16),
    ]
    write("purchaser_dim", [dict(zip(["purchaser_id", "name", "gender", "age"], p, strict=False)) for p in people])
    write(
        "rocketmq_source",
        [
            {
                "field_1": pick(["1", "2", "3", None]),
                "field_2": pick(["2", "10", "b%", ""]),
                "field_3": pick(["3", "33", None]),
                "field_4": pick(["4", "x_y", "testData", "my testData"]),
                "field_5": "ignored",
            }
            for _ in range(120)
        ],
    )
    write(
        "source_condition_0",
        [
            {
                "id": i,
                "num": None if r.random() < 0.1 else k(100) - 20,
                "position": pick(["shanghai", "shenzhen", "beijing", None]),
                "gmt_modified": stamp(base + i * 1000),
            }
            for i in range(1, 101)
        ],
    )
    write(
        "source_function_0",
        [
            {
                "id": i,
                "num": None if r.random() < 0.1 else k(100) - 20,
                "position": pick(["shanghai", "shenzhen", "beijing", None]),
                "gmt_modified": stamp(base + i * 1000),
            }
            for i in range(1, 201)
        ],
    )
    write(
        "leftJoin",
        [
            {"name": pick(["shenzhen", "shanghai", "beijing", "wuhan", None]), "age": pick([None, k(40), k(40)])}
            for _ in range(60)
        ],
    )
    write(
        "rightJoin",
        [
            {"name": n, "gender": g}
            for n, g in [
                ("shenzhen", "male"),
                ("shanghai", "male"),
                ("beijing", "female"),
                ("beijing", None),
                (None, "male"),
            ]
        ],
    )
    write(
        "logs",
        [
            {
                "id": i,
                "line": pick(["a,1,10|b,2,20", "c,3,30", "", None, "d,4,40|e,5,50|f,6,60"]),
                "level": pick(["INFO", "WARN", "ERROR", None]),
                "ts": stamp(base + i * 400 - (k(1500) if r.random() < 0.2 else 0)),
            }
            for i in range(1, 401)
        ],
    )


if __name__ == "__main__":
    main()
