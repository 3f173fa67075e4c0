"""The messages of Prometheus remote write 1.0, with the fields that are read. They are declared here because no package
on PyPI has them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

_Field = descriptor_pb2.FieldDescriptorProto
_PACKAGE = "headrace.prometheus"
#: The fields of each message: name, number and type. A type that is a text names another message, and such a field is
#: repeated.
_MESSAGES: Mapping[str, tuple[tuple[str, int, Any], ...]] = {
    "Label": (("name", 1, _Field.TYPE_STRING), ("value", 2, _Field.TYPE_STRING)),
    "Sample": (("value", 1, _Field.TYPE_DOUBLE), ("timestamp", 2, _Field.TYPE_INT64)),
    "Histogram": (("timestamp", 15, _Field.TYPE_INT64),),
    "TimeSeries": (("labels", 1, "Label"), ("samples", 2, "Sample"), ("histograms", 4, "Histogram")),
    "WriteRequest": (("timeseries", 1, "TimeSeries"),),
}


def _write_request() -> Any:
    file = descriptor_pb2.FileDescriptorProto(
        name="headrace_otlp/remote_write.proto", package=_PACKAGE, syntax="proto3"
    )
    for message, fields in _MESSAGES.items():
        made = file.message_type.add(name=message)
        for name, number, kind in fields:
            if isinstance(kind, str):
                made.field.add(
                    name=name, number=number, type=_Field.TYPE_MESSAGE, label=_Field.LABEL_REPEATED,
                    type_name=f".{_PACKAGE}.{kind}",
                )  # fmt: skip
            else:
                made.field.add(name=name, number=number, type=kind, label=_Field.LABEL_OPTIONAL)
    pool = (
        descriptor_pool.DescriptorPool()
    )  # a pool of its own, so that it does not conflict with another declaration of these messages in the process
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.WriteRequest"))


WriteRequest: Any = _write_request()
