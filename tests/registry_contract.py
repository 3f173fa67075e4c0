"""The contract of formats whose schemas are in a registry, held with a small registry of this process."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from headrace.flow.messages import Bodies
from headrace_contract import CodecContract
from headrace_schemaregistry.testing import SmallRegistry, small_registry


class RegistryCodecContract(CodecContract):
    """What such a format must do. A test gives ``codec_of``, and the bodies that are bad in its own way."""

    one_line = False
    options = {"registry_url": "http://127.0.0.1:1", "subject": "rows"}
    registry: SmallRegistry

    @pytest.fixture(autouse=True)
    def running(self) -> Iterator[None]:
        with small_registry() as type(self).registry:
            yield

    def codec_of(self, registry: SmallRegistry, **options: Any) -> Any:
        """Return a codec that asks this registry."""
        raise NotImplementedError

    def make_codec(self) -> Any:
        return self.codec_of(self.registry, subject="rows")

    def make_with_secret(self, secret: str) -> Any:
        codec = self.codec_of(self.registry, registry_user="anna", registry_password=secret)
        self.registry.answers = [(401, f"not {secret}".encode())]
        return codec

    def use(self, plugin: Any) -> None:
        plugin.decoder(self.columns).decode(Bodies.of([b"\x00" * 6]))

    def own_bad_bodies(self, good: bytes) -> list[bytes]:
        """Return bodies made from a good one that the format cannot read."""
        return []

    def bad_bodies(self) -> list[bytes]:
        good = self.make_body(self.make_row(0))
        framing = [b"", good[:4], good[:-1], b"\x01" + good[1:], b"\x00\x00\x00\x03\x09" + good[5:]]
        return [*framing, *self.own_bad_bodies(good)]
