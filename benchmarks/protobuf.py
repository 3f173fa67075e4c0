"""Messages of Protocol Buffers to columns and back on one core: ``python -m benchmarks.protobuf [messages]``.

The messages have eight fields: numbers, texts, one that may be absent, a timestamp.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from typing import Any

os.environ.setdefault("POLARS_MAX_THREADS", "1")

from google.protobuf import descriptor_pb2
from headrace.flow.messages import Bodies
from headrace_protobuf.codec import ProtobufCodec
from headrace_protobuf.descriptors import message_class

from benchmarks.rounds import best

BATCH_RECORDS = 20_000
F = descriptor_pb2.FieldDescriptorProto
FIELDS = {
    "host": F.TYPE_STRING, "pid": F.TYPE_INT32, "bytes": F.TYPE_INT64, "score": F.TYPE_DOUBLE, "ok": F.TYPE_BOOL,
    "path": F.TYPE_STRING,
}  # fmt: skip


def descriptors() -> bytes:
    file = descriptor_pb2.FileDescriptorProto(
        name="event.proto", package="bench", syntax="proto3", dependency=["google/protobuf/timestamp.proto"]
    )
    message = file.message_type.add(name="Event")
    for number, (name, kind) in enumerate(FIELDS.items(), 1):
        message.field.add(name=name, number=number, type=kind, label=F.LABEL_OPTIONAL)
    message.oneof_decl.add(name="_user")
    message.field.add(
        name="user", number=7, type=F.TYPE_STRING, label=F.LABEL_OPTIONAL, proto3_optional=True, oneof_index=0
    )
    message.field.add(
        name="ts", number=8, type=F.TYPE_MESSAGE, type_name=".google.protobuf.Timestamp", label=F.LABEL_OPTIONAL
    )
    return bytes(descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString())


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000
    made: Any = message_class(descriptors(), "bench.Event")
    bodies = [
        made(
            host=f"web-{n % 100}", pid=n % 70_000, bytes=n * 37, score=n / 7, ok=n % 3 == 0, path=f"/a/b/{n}",
            user=None if n % 7 == 0 else f"user{n % 1000}", ts={"seconds": 1_700_000_000 + n, "nanos": 1_000_000},
        ).SerializeToString()
        for n in range(count)
    ]  # fmt: skip
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "event.desc"
        path.write_bytes(descriptors())
        codec = ProtobufCodec(ProtobufCodec.Settings.of({"descriptor_file": str(path), "message": "bench.Event"}))
    schema = codec.default_schema()
    decoder, encoder = codec.decoder(schema), codec.encoder(schema)
    three = codec.decoder(schema, ["host", "pid", "path"])
    batches = [Bodies.of(bodies[at : at + BATCH_RECORDS]) for at in range(0, count, BATCH_RECORDS)]
    frames = [decoder.decode(batch).frame for batch in batches]
    print(f"decode, all eight fields     {best(count, lambda: [decoder.decode(b) for b in batches]):12,.0f} messages/s")
    print(f"decode, three fields         {best(count, lambda: [three.decode(b) for b in batches]):12,.0f} messages/s")
    print(f"the library alone, no fields {best(count, lambda: list(map(made.FromString, bodies))):12,.0f} messages/s")
    print(f"encode                       {best(count, lambda: [encoder.encode(f) for f in frames]):12,.0f} messages/s")


if __name__ == "__main__":
    main()
