"""The contract of the sample codec, as its author would write it."""

from __future__ import annotations

from collections.abc import Sequence

from headrace.interfaces.codec import Codec
from headrace_contract import CodecContract

from contract_samples.codecs import ArrayCodec


class ArrayContract(CodecContract):
    """Every method."""

    def make_codec(self) -> Codec:
        return ArrayCodec()

    def bad_bodies(self) -> Sequence[bytes]:
        return [b"", b"[1]", b"{}", b'["x", "y", 1.0, true]', b"[1, 2"]
