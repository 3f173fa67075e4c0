"""Records of Avro to columns and back on one core: ``python -m benchmarks.avro [records]``.

The records have eight fields: numbers, texts, one of which may be null, a timestamp. Beside headrace's format run fastavro alone, which
gives a dictionary for each record, and fastavro with polars making columns of these.
"""

from __future__ import annotations

import io
import json
import os
import sys
from typing import Any

os.environ.setdefault("POLARS_MAX_THREADS", "1")

import fastavro
import polars as pl
from headrace.flow.messages import Bodies
from headrace_avro.codec import AvroCodec

from benchmarks.rounds import best

BATCH_RECORDS = 20_000
FIELDS = {
    "ts": {"type": "long", "logicalType": "timestamp-millis"}, "host": "string", "user": ["null", "string"], "pid": "int",
    "bytes": "long", "score": "double", "ok": "boolean", "path": "string",
}  # fmt: skip
#: What is read record by record: a union of several types.
SINGLE = {**FIELDS, "user": ["null", "string", "long"]}


def schema_of(fields: dict[str, Any]) -> dict[str, Any]:
    return {"type": "record", "name": "event", "fields": [{"name": n, "type": t} for n, t in fields.items()]}


def records_of(count: int) -> list[dict[str, Any]]:
    return [
        {
            "ts": 1_700_000_000_000 + number, "host": f"web-{number % 100}", "user": None if number % 7 == 0 else f"user{number % 1000}",
            "pid": number % 70_000, "bytes": number * 37, "score": number / 7, "ok": number % 3 == 0, "path": f"/a/b/{number}",
        }
        for number in range(count)
    ]  # fmt: skip


def bodies_of(fields: dict[str, Any], records: list[dict[str, Any]]) -> list[bytes]:
    usable, bodies = fastavro.parse_schema(schema_of(fields)), []
    for record in records:
        file = io.BytesIO()
        fastavro.schemaless_writer(file, usable, record)
        bodies.append(file.getvalue())
    return bodies


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000
    records = records_of(count)
    bodies = bodies_of(FIELDS, records)
    usable = fastavro.parse_schema(schema_of(FIELDS))

    def alone() -> list[Any]:
        return [fastavro.schemaless_reader(io.BytesIO(body), usable, None) for body in bodies]

    codec = AvroCodec(AvroCodec.Settings.of({"avro_schema": json.dumps(schema_of(FIELDS))}))
    schema = codec.default_schema()
    assert schema is not None
    decoder, encoder = codec.decoder(schema), codec.encoder(schema)
    batches = [Bodies.of(bodies[at : at + BATCH_RECORDS]) for at in range(0, count, BATCH_RECORDS)]
    frames = [decoder.decode(batch).frame for batch in batches]
    several = AvroCodec(AvroCodec.Settings.of({"avro_schema": json.dumps(schema_of(SINGLE))}))
    some = bodies_of(SINGLE, records[:BATCH_RECORDS])
    one_by_one = several.decoder(several.default_schema() or schema)
    print(
        f"decode, by columns             {best(count, lambda: [decoder.decode(b) for b in batches]):12,.0f} records/s"
    )
    print(
        f"decode, record by record       {best(len(some), lambda: one_by_one.decode(Bodies.of(some))):12,.0f} records/s"
    )
    print(f"fastavro                       {best(count, alone):12,.0f} records/s")
    print(
        f"fastavro, polars makes columns {best(count, lambda: pl.DataFrame(alone(), schema=dict(schema))):12,.0f} records/s"
    )
    print(f"encode                         {best(count, lambda: [encoder.encode(f) for f in frames]):12,.0f} records/s")


if __name__ == "__main__":
    main()
