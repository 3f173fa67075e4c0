"""Healthy codecs pass every check."""

from __future__ import annotations

from contract_samples.codec_contracts import ArrayContract


class TestArrayCodec(ArrayContract):
    """A codec of arrays."""
