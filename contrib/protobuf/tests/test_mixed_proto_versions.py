"""Bodies of old and new writers in one topic, in any order, read by the descriptor set of the job: as Google's library reads each."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import headrace as hr
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from headrace.testing import MemorySink, MemorySource
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from messages import TYPES, F, file_of, write

from tests.effort import examples

#: Types whose bodies are compatible: of one number a writer may have had any of a group, the reader another.
GROUPS = (("int32", "int64", "uint32", "bool"), ("sint32", "sint64"), ("string", "bytes"), ("fixed64",), ("double",))
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "int32": st.integers(-(2**31), 2**31 - 1), "int64": st.integers(-(2**63), 2**63 - 1), "uint32": st.integers(0, 2**32 - 1),
    "bool": st.booleans(), "sint32": st.integers(-(2**31), 2**31 - 1), "sint64": st.integers(-(2**63), 2**63 - 1),
    "string": st.text("aä€", max_size=5), "bytes": st.text("aä€", max_size=5).map(str.encode),
    "fixed64": st.integers(0, 2**63 - 1), "double": st.floats(allow_nan=False),
}  # fmt: skip


def file_with(fields: list[tuple[str, int, str]]) -> Any:
    """Return a file with one message, whose fields have presence, in the order that is given."""
    file = file_of()
    message = file.message_type.add(name="R")
    for place, (name, number, kind) in enumerate(fields):
        made = message.field.add(
            name=name, number=number, type=TYPES[kind], label=F.LABEL_OPTIONAL, proto3_optional=True
        )
        made.oneof_index = place
        message.oneof_decl.add(name=f"_{name}")
    return file


def message_of(file: Any) -> Any:
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(descriptor_pb2.FileDescriptorProto.FromString(file.SerializeToString()).SerializeToString())
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("test.R"))


@settings(max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_versions_in_any_order(data: st.DataObject, tmp_path: Path) -> None:
    groups = data.draw(st.lists(st.sampled_from(GROUPS), min_size=1, max_size=5))
    reader_fields = [(f"f{n}", n + 1, data.draw(st.sampled_from(group))) for n, group in enumerate(groups)]
    reader = file_with(data.draw(st.permutations(reader_fields)))
    as_read = message_of(reader)
    writers = []
    for _ in range(data.draw(st.integers(1, 3))):
        fields = [
            (f"w{n}", n + 1, data.draw(st.sampled_from(group)))
            for n, group in enumerate(groups)
            if data.draw(st.integers(0, 3))
        ]
        fields += [
            (f"gone{n}", 100 + n, data.draw(st.sampled_from(sorted(VALUES))))
            for n in range(data.draw(st.integers(0, 2)))
        ]
        writers.append((fields, message_of(file_with(data.draw(st.permutations(fields))))))
    bodies, wanted = [], []
    for _ in range(data.draw(st.integers(1, 12))):
        fields, made = data.draw(st.sampled_from(writers))
        values = {name: data.draw(VALUES[kind]) for name, _, kind in fields if data.draw(st.integers(0, 4))}
        body = made(**values).SerializeToString()
        bodies.append(body)
        found = as_read.FromString(body)
        wanted.append({name: getattr(found, name) if found.HasField(name) else None for name, _, _ in reader_fields})
    sink, letters = MemorySink(), MemorySink()
    stream = hr.stream("tests", "mixed").from_(
        MemorySource({"q": bodies}),
        format="protobuf",
        descriptor_file=write(tmp_path / "r.desc", reader),
        message="test.R",
    )
    stream.dead_letters(lambda bad: bad.to(letters)).to(sink).run("light", show_progress=False, max_batch_records=5)
    assert letters.rows == []
    assert [{name: row[name] for name, _, _ in reader_fields} for row in sink.rows] == wanted
