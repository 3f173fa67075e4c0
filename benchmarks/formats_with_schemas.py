"""Bodies of a topic whose schemas are in a registry, on one core: ``python -m benchmarks.formats_with_schemas [records]``.

The same records of eight fields (numbers, texts, one of which may be null, a timestamp) in Avro, Protobuf and JSON Schema, each body with
the id of its schema before it: decoded to all columns, to two, and with three versions of the schema in turns. A registry within the
process gives the schemas once.
"""

from __future__ import annotations

import io
import json
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

os.environ.setdefault("POLARS_MAX_THREADS", "1")

import fastavro
import headrace as hr
from headrace_avro.confluent import AvroConfluentCodec
from headrace_jsonschema.confluent import JsonSchemaConfluentCodec
from headrace_protobuf.confluent import ProtobufConfluentCodec
from headrace_protobuf.descriptors import message_class
from headrace_schemaregistry.testing import SmallRegistry, small_registry

from benchmarks import avro, protobuf
from benchmarks.rounds import best

BATCH_RECORDS = 20_000
COLUMNS = {
    "host": "string", "user": "string", "pid": "int32", "bytes": "int64", "score": "float64", "ok": "boolean", "path": "string",
    "ts": "timestamp",
}  # fmt: skip
PROTO = """syntax = "proto3";
package bench;
import "google/protobuf/timestamp.proto";
message Event {
  string host = 1; int32 pid = 2; int64 bytes = 3; double score = 4; bool ok = 5; string path = 6; optional string user = 7;
  google.protobuf.Timestamp ts = 8;%s
}
"""
OBJECT: dict[str, Any] = {
    "type": "object",
    "properties": {
        "host": {"type": "string", "maxLength": 253}, "user": {"type": ["string", "null"]}, "pid": {"type": "integer", "minimum": 0},
        "bytes": {"type": "integer"}, "score": {"type": "number"}, "ok": {"type": "boolean"}, "path": {"type": "string"},
        "ts": {"type": "string", "format": "date-time"},
    },
    "required": ["host", "pid", "ts"],
}  # fmt: skip


@contextmanager
def codecs(registry: SmallRegistry) -> Iterator[dict[str, hr.Codec]]:
    """Give the codecs by the name that the table has."""
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "event.desc"
        path.write_bytes(protobuf.descriptors())
        options: dict[type[hr.Codec], dict[str, str]] = {
            AvroConfluentCodec: {},
            ProtobufConfluentCodec: {"descriptor_file": str(path), "message": "bench.Event"},
            JsonSchemaConfluentCodec: {},
        }
        made = [kind(kind.Settings.of({"registry_url": registry.url, **given})) for kind, given in options.items()]
        yield dict(zip(("Avro", "Protobuf", "JSON Schema"), made, strict=True))


def versions(registry: SmallRegistry) -> dict[str, list[int]]:
    """Register three versions of each schema, which differ in a field that no body has; return their ids."""
    found: dict[str, list[int]] = {"Avro": [], "Protobuf": [], "JSON Schema": []}
    for number in range(3):
        more = {f"later{number}": ["null", "string"]} if number else {}
        found["Avro"].append(registry.add("avro", json.dumps(avro.schema_of({**avro.FIELDS, **more}))))
        text = PROTO % (f" optional string later = {20 + number};" if number else "")
        found["Protobuf"].append(registry.add("proto", text, schemaType="PROTOBUF"))
        described = {**OBJECT, "title": f"version {number}"}
        found["JSON Schema"].append(registry.add("json", json.dumps(described), schemaType="JSON"))
    return found


def contents(records: Sequence[dict[str, Any]]) -> dict[str, list[list[bytes]]]:
    """Return the bodies of records as each of three versions has them."""
    made: Any = message_class(protobuf.descriptors(), "bench.Event")
    messages = []
    for record in records:
        seconds, milliseconds = divmod(record["ts"], 1000)
        own = {name: value for name, value in record.items() if name != "ts" and value is not None}
        messages.append(
            b"\x00" + made(**own, ts={"seconds": seconds, "nanos": milliseconds * 1_000_000}).SerializeToString()
        )
    objects = [json.dumps({**record, "ts": "2026-01-15T10:23:45.123Z"}).encode() for record in records]
    plain = [_avro(record, {}) for record in records]
    return {
        "Avro": [plain, *([body + b"\x00" for body in plain] for _ in range(2))],  # null is the field that came later
        "Protobuf": [messages] * 3,
        "JSON Schema": [objects] * 3,
    }


def _avro(record: dict[str, Any], more: dict[str, Any]) -> bytes:
    file = io.BytesIO()
    fastavro.schemaless_writer(file, _PARSED, {**record, **more})
    return file.getvalue()


_PARSED = fastavro.parse_schema(avro.schema_of(avro.FIELDS))


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000
    records = avro.records_of(count)
    schema = hr.Schema.of(COLUMNS)
    print("| | all eight columns | two columns | three versions in turns |")
    print("|---|---|---|---|")
    with small_registry() as registry, codecs(registry) as made:
        ids, bodies = versions(registry), contents(records)
        for name, codec in made.items():
            framed = [
                [b"\x00" + number.to_bytes(4, "big") + body for body in of_version]
                for number, of_version in zip(ids[name], bodies[name], strict=True)
            ]
            mixed = [framed[row % 3][row] for row in range(count)]
            rates = []
            for columns, sent in ((None, framed[0]), (["host", "bytes"], framed[0]), (None, mixed)):
                decoder = codec.decoder(schema, columns)
                batches = [hr.Bodies.of(sent[at : at + BATCH_RECORDS]) for at in range(0, count, BATCH_RECORDS)]
                assert not decoder.decode(batches[0]).bad
                rates.append(best(count, lambda: [decoder.decode(batch) for batch in batches]))  # noqa: B023
            print(f"| {name} | " + " | ".join(f"{round(rate, -3):,.0f}" for rate in rates) + " |", flush=True)


if __name__ == "__main__":
    main()
