#!/usr/bin/env python3
# ruff: noqa: UP031
"""Seeded generator for the small 'ops' data set (own design): host/user activity with NULLs, JSON text,
tags, out-of-order and late rows; orders/payments without late rows; currency rates; a user dimension.

    opsgen.py --dir data --tag a --seed 11

Files: ops_TAG.ndjson, orders_TAG.ndjson, pays_TAG.ndjson, rates_TAG.ndjson, users_TAG.ndjson, side_input.csv
Only random.random() is used, so the output is the same on every CPython 3.
"""

import argparse
import hashlib
import json
import os
import random
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, TypeVar

T = TypeVar("T")
#: A row of a file, by column.
Row = dict[str, Any]


def ms(s: str) -> int:
    return int(datetime.strptime(s, "%Y-%m-%d %H:%M:%S.%f").replace(tzinfo=UTC).timestamp() * 1000)


def stamp(t: int) -> str:
    return datetime.fromtimestamp(t // 1000, tz=UTC).strftime("%Y-%m-%d %H:%M:%S") + ".%03d" % (t % 1000)


class R(random.Random):
    def k(self, n: int) -> int:
        return int(self.random() * n)

    def pick(self, xs: Sequence[T]) -> T:
        return xs[int(self.random() * len(xs))]

    def maybe(self, p: float) -> bool:
        return self.random() < p


ACTS = ["login", "exec", "exec", "exec", "download", "upload", "heartbeat", "heartbeat", "logout"]
TAGS = ["red", "green", "blue", "amber", "x-1", "x_2", "数据", "a b"]
CMDS = [
    "/usr/bin/python3 -m http.server %d",
    "curl http://10.%d.2.3/x.sh | sh",
    "/bin/ls -la /tmp/dir_%d",
    "C:\\Windows\\cmd.exe /c echo %d%%",
    "rm -rf /var/log/app_%d.log",
    "ssh root@192.168.1.%d",
    "grep -E 'a|b' file%d.txt",
    "SELECT 100%% FROM t_%d",
    "  padded %d  ",
    "java -jar app-%d.jar",
]


def write(path: str, rows: Sequence[Mapping[str, Any]]) -> None:
    h = hashlib.sha256()
    with open(path, "w", encoding="utf-8", newline="\n") as f:
        for r in rows:
            line = json.dumps(r, ensure_ascii=False, separators=(",", ":"))
            f.write(line + "\n")
            h.update(line.encode() + b"\n")
    print(json.dumps({"file": path, "rows": len(rows), "sha256": h.hexdigest()}))


def payload(r: R) -> str | None:
    u = r.random()
    if u < 0.05:
        return None
    if u < 0.08:
        return r.pick(["{bad json", "", "[1,2", "not json", '{"src":}'])
    doc: Row = {
        "src": {"ip": "10.0.%d.%d" % (r.k(4), r.k(250)), "port": r.pick([22, 80, 443, 8080])},
        "tags": [r.pick(TAGS) for _ in range(r.k(4))],
        "lvl": r.k(6),
    }
    if r.maybe(0.3):
        doc["note"] = r.pick([None, "ok", "it's", "multi\nline", "ünï", ""])
    if r.maybe(0.2):
        doc["score"] = round(r.random() * 10, 3)
    if r.maybe(0.1):
        doc["flag"] = r.maybe(0.5)
    return json.dumps(doc, ensure_ascii=False)


def ops(r: R, n_target: int) -> list[Row]:
    base = ms("2028-02-28 23:50:00.000")
    ev: list[tuple[int, int]] = []  # (event time, uid)
    uid = 0
    while len(ev) < n_target:
        uid += 1
        u = 1 + r.k(300)
        t = base + r.k(1_500_000)
        for _ in range(1 + r.k(14)):
            ev.append((t, u))
            c = r.random()
            if c < 0.06:
                t += 30_000  # exactly the session gap used in the queries
            elif c < 0.10:
                t += 30_001  # one millisecond more
            elif c < 0.14:
                t += 29_999
            elif c < 0.18:
                t += 0  # same timestamp twice
            else:
                t += r.k(25_000)
    ev.sort()
    ev = ev[:n_target]
    out = []
    for i, (t, u) in enumerate(ev):
        d, x = 0, r.random()
        if x < 0.004:
            d = 2_100 + r.k(60_000)  # later than the 2 s bound
        elif x < 0.12:
            d = r.k(1_900)
        out.append((t + d, i, t, u))
    out.sort(key=lambda x: (x[0], x[1]))
    rows = []
    for seq, (_, _, t, u) in enumerate(out, 1):
        cmd = r.pick(CMDS)
        tags = None if r.maybe(0.04) else "|".join(r.pick(TAGS) for _ in range(r.k(4)))
        if tags and r.maybe(0.05):
            tags = tags + "||" + r.pick(TAGS)
        rows.append(
            {
                "seq": seq,
                "host": None if r.maybe(0.02) else "h%02d" % r.k(25),
                "uid": None if r.maybe(0.03) else u,
                "act": r.pick(ACTS),
                "ok": r.pick([True, True, True, False, None]),
                "dur": None if r.maybe(0.06) else round(10 ** (r.random() * 4) / 7.0, 4),
                "bytes": None if r.maybe(0.05) else r.pick([0, -1, r.k(100), r.k(10_000), r.k(2_000_000)]),
                "cmd": None if r.maybe(0.02) else (cmd % r.k(300)),
                "payload": payload(r),
                "tags": tags,
                "ts": stamp(t),
            }
        )
    return rows


def disorder(r: R, rows: Sequence[Row], key: str, bound: int) -> list[Row]:
    keyed = [(r_[key + "_ms"] + (r.k(bound) if r.maybe(0.15) else 0), i, r_) for i, r_ in enumerate(rows)]
    keyed.sort(key=lambda x: (x[0], x[1]))
    out = []
    for _, _, x in keyed:
        x = dict(x)
        t = x.pop(key + "_ms")
        x[key] = stamp(t)
        out.append(x)
    return out


def main() -> None:
    ap = argparse.ArgumentParser(description=__doc__)
    ap.add_argument("--dir", required=True)
    ap.add_argument("--tag", required=True)
    ap.add_argument("--seed", type=int, required=True)
    ap.add_argument("--ops", type=int, default=12_000)
    ap.add_argument("--orders", type=int, default=4_000)
    a = ap.parse_args()
    r = R(a.seed)

    def p(n: str) -> str:
        return os.path.join(a.dir, n)

    write(p(f"ops_{a.tag}.ndjson"), ops(r, a.ops))

    base = ms("2028-02-29 10:00:00.000")
    orders: list[Row] = []
    pays: list[Row] = []
    t = base
    for i in range(a.orders):
        t += r.k(600)
        oid = 10_000 + i
        cur = r.pick(["USD", "EUR", "CNY", "JPY", "XXX"])
        amt = round(1 + 10 ** (r.random() * 4), 2)
        orders.append(
            {"oid": oid, "uid": None if r.maybe(0.02) else 1 + r.k(300), "cur": cur, "amount": amt, "otime_ms": t}
        )
        x = r.random()
        parts = 0 if x < 0.15 else (1 if x < 0.8 else 2)
        for _j in range(parts):
            y = r.random()
            dt = (
                -5_000
                if y < 0.03
                else 30_000
                if y < 0.06
                else 30_001
                if y < 0.09
                else -5_001
                if y < 0.12
                else r.k(50_000) - 4_000
            )
            pays.append(
                {
                    "pid": len(pays) + 1,
                    "oid": None if r.maybe(0.01) else oid,
                    "paid": round(amt / parts, 2),
                    "ptime_ms": t + dt,
                }
            )
    pays.sort(key=lambda x: x["ptime_ms"])
    write(p(f"orders_{a.tag}.ndjson"), disorder(r, orders, "otime", 1_900))
    write(p(f"pays_{a.tag}.ndjson"), disorder(r, pays, "ptime", 1_900))

    rates: list[Row] = []
    tr = base - 60_000
    for c in ["USD", "EUR", "CNY"]:
        rates.append({"cur": c, "rate": round(0.1 + r.random() * 2, 4), "rtime_ms": tr})
    while tr < t:
        tr += r.k(15_000)
        c = r.pick(["USD", "EUR", "CNY", "JPY"]) if tr > base + 200_000 else r.pick(["USD", "EUR", "CNY"])
        rates.append({"cur": c, "rate": round(0.1 + r.random() * 2, 4), "rtime_ms": tr})
    write(p(f"rates_{a.tag}.ndjson"), disorder(r, rates, "rtime", 1_900))

    users = []
    for u in range(1, 301):
        if r.maybe(0.2):
            continue
        users.append(
            {
                "uid": u,
                "name": r.pick(["Ann", "Bob", "Çelik", "Dee", "李", "Eve"]) + str(u),
                "dept": None if r.maybe(0.1) else r.pick(["ops", "dev", "sec", "hr"]),
                "level": None if r.maybe(0.1) else r.k(10),
            }
        )
    write(p(f"users_{a.tag}.ndjson"), users)

    with open(p("side_input.csv"), "w") as f:  # q13: 4 keys of 5 exist
        for i in range(10_000):
            if i % 5 != 3:
                f.write("%d,side-%d\n" % (i, i * 7))


if __name__ == "__main__":
    main()
