"""What fields of messages become, what is bad, and what is refused when the job is built."""

from __future__ import annotations

import datetime as dt
import pickle
from decimal import Decimal
from pathlib import Path
from typing import Any

import headrace as hr
import polars as pl
import pytest
from headrace.flow.messages import Bodies
from headrace_protobuf.codec import ProtobufCodec
from headrace_protobuf.descriptors import message_class
from messages import add_map, add_message, file_of, write


def codec_of(path: str, message: str = "test.M", **options: Any) -> ProtobufCodec:
    return ProtobufCodec(ProtobufCodec.Settings.of({"descriptor_file": path, "message": message, **options}))


@pytest.fixture
def everything(tmp_path: Path) -> str:
    """A message with fields of all kinds."""
    well_known = [f"google/protobuf/{name}.proto" for name in ("timestamp", "duration", "wrappers", "struct", "any")]
    file = file_of(imports=well_known)
    kind = file.enum_type.add(name="Kind")
    kind.value.add(name="NONE", number=0)
    kind.value.add(name="SALE", number=1)
    message = add_message(
        file, "M", id="uint64", small="fixed32", kind="enum:.test.Kind", kinds="repeated enum:.test.Kind",
        at=".google.protobuf.Timestamp", took=".google.protobuf.Duration", boxed=".google.protobuf.Int64Value",
        name=".google.protobuf.StringValue", free=".google.protobuf.Struct", tags="repeated string", inner=".test.Inner",
        inners="repeated .test.Inner", tree=".test.Tree",
    )  # fmt: skip
    add_map(message, "counts", 40, "string", "int64")
    add_message(file, "Inner", x="int32", at=".google.protobuf.Timestamp")
    add_message(file, "Tree", value="int32", children="repeated .test.Tree")
    return write(tmp_path / "m.desc", file)


def test_what_fields_become(everything: str) -> None:
    codec = pickle.loads(pickle.dumps(codec_of(everything)))  # noqa: S301
    columns = codec.default_schema()
    assert str(columns) == (
        "Schema(id: decimal(20, 0), small: int64, kind: string, kinds: array<string>, at: timestamp, took: duration, boxed: int64, "
        "name: string, free: string, tags: array<string>, inner: struct<x: int32, at: timestamp>, "
        "inners: array<struct<x: int32, at: timestamp>>, tree: string, counts: string)"
    )
    assert columns.json_columns == {"free", "tree", "counts"}
    made = message_class(Path(everything).read_bytes(), "test.M")
    moment = dt.datetime(1960, 2, 29, 1, 2, 3, 456_789, dt.UTC)
    message: Any = made(
        id=2**64 - 1, small=2**32 - 1, kind="SALE", kinds=["NONE", "SALE"], at=moment, took=dt.timedelta(seconds=-1.5),
        boxed={"value": 7}, name={"value": "x"}, tags=["a", ""], inner={"x": 1}, inners=[{"x": 2, "at": moment}],
        tree={"value": 1, "children": [{"value": 2}]}, counts={"a": 1},
    )  # fmt: skip
    message.free.update({"a": [1, None]})
    decoded = codec.decoder(columns).decode(Bodies.of([message.SerializeToString(), b""]))
    assert decoded.frame.to_dicts() == [
        {
            "id": Decimal(2**64 - 1), "small": 2**32 - 1, "kind": "SALE", "kinds": ["NONE", "SALE"], "at": moment,
            "took": dt.timedelta(seconds=-1.5), "boxed": 7, "name": "x", "free": '{"a":[1.0,null]}', "tags": ["a", ""],
            "inner": {"x": 1, "at": None}, "inners": [{"x": 2, "at": moment}],
            "tree": '{"value":1,"children":[{"value":2}]}', "counts": '{"a":"1"}',
        },
        {
            "id": Decimal(0), "small": 0, "kind": "NONE", "kinds": [], "at": None, "took": None, "boxed": None, "name": None,
            "free": None, "tags": [], "inner": None, "inners": [], "tree": None, "counts": "{}",
        },
    ]  # fmt: skip
    kept = [name for name in columns if name not in columns.json_columns]
    written = codec.encoder(hr.Schema({name: columns[name] for name in kept})).encode(decoded.frame.select(kept)[:1])
    again = codec.decoder(columns, kept).decode(Bodies.of(list(written)))
    assert again.frame.equals(decoded.frame.select(kept)[:1])


def test_values_outside_of_their_columns(everything: str) -> None:
    made: Any = message_class(Path(everything).read_bytes(), "test.M")
    bad = made(id=2**63, kind=7)
    bad.at.seconds = 2**60
    columns = hr.Schema.of({"small": "int64", "id": "int64"})
    codec = codec_of(everything)

    def reasons(**columns: str) -> list[str]:
        decoded = codec.decoder(hr.Schema.of(columns)).decode(Bodies.of([b"", bad.SerializeToString(), b""]))
        assert decoded.frame.height == 2
        assert decoded.rows is not None
        assert decoded.rows.tolist() == [0, 2]
        return [each.reason for each in decoded.bad]

    assert reasons(id="int64") == ["column 'id': 9223372036854775808 is not in the range of int64"]
    assert reasons(kind="string") == ["column 'kind': 7 is not a value of the enum test.Kind"]
    assert reasons(at="timestamp") == [f"column 'at': {2**60} s and 0 ns is not a timestamp"]
    assert codec.decoder(columns, ["small"]).decode(Bodies.of([bad.SerializeToString()])).bad == ()
    assert codec.decoder(hr.Schema.of({"kind": "int32"})).decode(Bodies.of([bad.SerializeToString()])).frame.rows() == [
        (7,)
    ]


def test_presence_and_required_fields(tmp_path: Path) -> None:
    file = file_of(syntax="proto2")
    add_message(file, "M", id="required int64", note="optional string")
    codec = codec_of(write(tmp_path / "m.desc", file))
    columns = codec.default_schema()
    made: Any = message_class((tmp_path / "m.desc").read_bytes(), "test.M")
    whole, part = made(id=1).SerializeToString(), made(note="x").SerializePartialToString()
    decoded = codec.decoder(columns).decode(Bodies.of([whole, part]))
    assert decoded.frame.rows() == [(1, None)]
    assert [bad.reason for bad in decoded.bad] == ["required fields are missing: id"]
    with pytest.raises(hr.OptionError, match="no column for the required field 'id'"):
        codec.encoder(hr.Schema.of({"note": "string"}))


def test_null_in_a_field_without_presence(tmp_path: Path) -> None:
    file = file_of()
    add_message(file, "M", id="int64", tags="repeated string")
    path = write(tmp_path / "m.desc", file)
    columns = hr.Schema.of({"id": "int64", "tags": "array<string>"})
    frame = pl.DataFrame({"id": [None], "tags": [["a"]]}, schema=dict(columns))
    with pytest.raises(hr.DataError, match="'id' is NULL"):
        codec_of(path).encoder(columns).encode(frame)
    assert list(codec_of(path, null_as_default=True).encoder(columns).encode(frame)) == [b"\x12\x01a"]
    holes = pl.DataFrame({"id": [1], "tags": [["a", None]]}, schema=dict(columns))
    with pytest.raises(hr.DataError, match="a list contains NULL"):
        codec_of(path, null_as_default=True).encoder(columns).encode(holes)


def test_files_in_any_order_and_imports_that_are_missing(tmp_path: Path) -> None:
    base, main = file_of("base.proto"), file_of("main.proto", imports=["base.proto"])
    add_message(base, "Inner", x="int32")
    add_message(main, "M", inner=".test.Inner")
    codec = codec_of(write(tmp_path / "both.desc", main, base))
    assert codec.default_schema() == hr.Schema.of({"inner": "struct<x: int32>"})
    with pytest.raises(hr.OptionError, match=r"lacks the file 'base\.proto', which 'main\.proto' imports") as caught:
        codec_of(write(tmp_path / "main.desc", main))
    assert "--include_imports" in str(caught.value.hint)


@pytest.mark.parametrize(
    ("content", "message"), [(None, "No such file"), (b"\xff\xff", "not a descriptor set"), (b"", "contains no files")]
)
def test_files_that_are_no_descriptor_sets(tmp_path: Path, content: bytes | None, message: str) -> None:
    path = tmp_path / "x.desc"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(hr.OptionError, match=message):
        codec_of(str(path))


def test_columns_and_messages_that_do_not_fit(everything: str) -> None:
    with pytest.raises(hr.OptionError, match=r"no message 'test\.Iner'") as caught:
        codec_of(everything, "test.Iner")
    assert "test.Inner" in str(caught.value.hint)
    codec = codec_of(everything)
    for columns, why in (
        ({"idd": "int64"}, r"'idd' is not a field of test\.M"),
        ({"small": "string"}, "'small' of type fixed32 cannot be converted to string"),
        ({"tags": "string", "kind": "boolean"}, "'kind' of type enum cannot be converted to boolean"),
        ({"inner": "struct<y: int32>"}, "has no field 'y'"),
        ({"at": "int64"}, r"of type google\.protobuf\.Timestamp cannot be converted to int64"),
    ):
        with pytest.raises(hr.OptionError, match=why):
            codec.decoder(hr.Schema.of(columns))
    with pytest.raises(hr.OptionError, match="'counts' of type map cannot be converted to string"):
        codec.encoder(hr.Schema.of({"counts": "string"}))
    with pytest.raises(hr.OptionError, match="columns are not known"):
        codec.encoder(None)
