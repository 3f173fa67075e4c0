"""What conditions need, on disk: a process that has the same rules for the same columns need not parse them.

Texts are stored in packs of some hundred. Where a pack ends depends on the texts alone, so a changed rule costs the parsing of one
pack. What user functions decide is not stored: their code may change without their name.
"""

from __future__ import annotations

import hashlib
import logging
import platform
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from headrace.flow.schema import Schema

from headrace_rules.atoms import Need, ValueAtom
from headrace_rules.disk_cache import DiskCache
from headrace_rules.prepared import PreparedCondition

if TYPE_CHECKING:
    from headrace_rules.prepared import Preparer

logger = logging.getLogger(__name__)

#: A pack ends behind a text whose checksum ends in these bits: one of 256.
_PACK_BITS = 0xFF
#: Fewer texts are parsed as fast as a file is read.
_STORED_FROM = 16


class _Stored(msgspec.Struct, array_like=True, gc=False):
    """What is known of a condition, without the functions that verify it."""

    need: Need | None
    equalities: tuple[ValueAtom, ...]
    columns: tuple[str, ...]
    is_whole: bool
    calls: tuple[str, ...]


class _Files(DiskCache):
    magic = b"headrace-rules-conditions-1\n"
    suffix = ".conditions"
    files_max = 1_000


@dataclass(eq=False, slots=True)
class Pack:
    """Texts that are stored together, and the key that they are stored under."""

    texts: Sequence[str]
    key: bytes
    is_stored: bool = False


class ConditionCache:
    """What the conditions for one schema need. Several processes may use the same directory."""

    def __init__(self, directory: Path | None = None) -> None:
        self._files = _Files(directory)
        self._decoder = msgspec.msgpack.Decoder(list[_Stored | None])

    def packs(self, texts: Sequence[str], schema: Schema) -> list[Pack]:
        """Return the packs of texts."""
        if len(texts) < _STORED_FROM:
            return []
        about = _environment() + repr([(name, str(kind)) for name, kind in schema.items()]).encode()
        return [Pack(part, _key(about, part)) for part in _divided(texts)]

    def read(self, pack: Pack, preparer: Preparer) -> dict[str, PreparedCondition]:
        """Return the conditions of a pack that are stored. What names a function that is now one of the user's is left out."""
        content = self._files.find(pack.key)
        if content is None:
            return {}
        try:
            stored = self._decoder.decode(content)
        except msgspec.MsgspecError as error:
            logger.warning("the cache of parsed conditions cannot be read, so conditions are parsed again: %s", error)
            return {}
        if len(stored) != len(pack.texts):
            return {}
        pack.is_stored = True
        named = frozenset().union(*(one.calls for one in stored if one is not None))
        own = frozenset(name for name in named if name in preparer.functions)
        return {
            text: PreparedCondition(
                text, one.need, one.equalities, preparer.shared(one.columns), one.is_whole, frozenset(one.calls)
            )
            for text, one in zip(pack.texts, stored, strict=True)
            if one is not None and own.isdisjoint(one.calls)
        }

    def write(
        self, packs: Iterable[Pack], prepared: Mapping[str, PreparedCondition], functions: Mapping[str, Any]
    ) -> None:
        """Store the packs that are not stored. A text that is not in ``prepared``, or calls a user function, is not in them."""
        unstored = [pack for pack in packs if not pack.is_stored]
        for pack in unstored:
            conditions = [prepared.get(text) for text in pack.texts]
            try:
                content = msgspec.msgpack.encode(
                    [None if one is None else _stored(one, functions) for one in conditions]
                )
            except UnicodeEncodeError:  # half a surrogate pair
                continue
            self._files.store(pack.key, content)
            pack.is_stored = True
        if unstored:
            self._files.trim()


def _stored(condition: PreparedCondition, functions: Mapping[str, Any]) -> _Stored | None:
    if any(name in functions for name in condition.calls):
        return None
    return _Stored(
        condition.need,
        condition.equalities,
        tuple(sorted(condition.columns)),
        condition.is_whole,
        tuple(sorted(condition.calls)),
    )


def _divided(texts: Sequence[str]) -> Iterator[Sequence[str]]:
    begin = 0
    for end, text in enumerate(texts, 1):
        if not zlib.crc32(text.encode(errors="surrogatepass")) & _PACK_BITS or end == len(texts):
            yield texts[begin:end]
            begin = end


def _key(about: bytes, texts: Sequence[str]) -> bytes:
    hashed = hashlib.sha256(about)
    for text in texts:
        content = text.encode(errors="surrogatepass")
        hashed.update(len(content).to_bytes(8, "big"))
        hashed.update(content)
    return hashed.digest()


@cache
def _environment() -> bytes:
    """Return what else decides what conditions need: the code of both packages, and the versions of the libraries that read them."""
    hashed = hashlib.sha256(repr((platform.python_version(), *map(version, ("sqlglot", "polars", "msgspec")))).encode())
    for package in ("headrace_rules", "headrace_columnar"):
        spec = find_spec(package)
        for place in () if spec is None else spec.submodule_search_locations or ():
            for path in sorted(Path(place).rglob("*.py")):
                hashed.update(str(path.relative_to(place)).encode() + b"\n" + path.read_bytes())
    return hashed.digest()
