"""Every format of changes keeps the contract of codecs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, ClassVar

import pytest
from headrace.interfaces.codec import Codec
from headrace.interfaces.registry import default_registry
from headrace_contract import CodecContract

BASIC: Sequence[str] = ("string", "int64", "float64", "boolean", "date", "timestamp", "decimal(20, 4)")


class Changes(CodecContract):
    """A body is one added row, with the envelope of the format."""

    format: ClassVar[str]
    #: What stands around a row.
    front: ClassVar[bytes]
    behind: ClassVar[bytes]

    def make_codec(self) -> Codec:
        kind = default_registry().find("codec", self.format)
        codec: Codec = kind(kind.Settings.of({}, plugin=self.format))
        return codec

    def bad_bodies(self) -> Sequence[bytes]:
        return (b"{}", b"[]", b"null", b"{", b" ", self.front + b"[]" + self.behind, self.front + b"null" + self.behind)

    def test_the_envelope_is_that_of_the_format(self) -> None:
        row: dict[str, Any] = {"id": 1, "text": "a", "amount": 0.5, "flag": True}
        assert self.make_body(row) == self.front + json.dumps(row, separators=(",", ":")).encode() + self.behind


class TestDebezium(Changes):
    format = "debezium-json"
    front, behind = b'{"before":null,"after":', b',"op":"c"}'


class TestCanal(Changes):
    format = "canal-json"
    front, behind = b'{"data":[', b'],"type":"INSERT"}'


class TestMaxwell(Changes):
    format = "maxwell-json"
    front, behind = b'{"data":', b',"type":"insert"}'


class TestOgg(Changes):
    format = "ogg-json"
    front, behind = b'{"before":null,"after":', b',"op_type":"I"}'


class TestChangelog(Changes):
    format = "changelog-json"
    front, behind = b'{"data":', b',"op":"+I"}'


def test_upsert_is_for_reading() -> None:
    from headrace.foundation.errors import OptionError

    with pytest.raises(OptionError, match="can only be read"):
        default_registry().find("codec", "upsert")().encoder(None)
