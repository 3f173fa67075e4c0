"""Rows with their kind of change to bodies: the JSON object of each row between the words of its format."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import polars as pl
from headrace.codecs.json_encoder import JsonEncoder
from headrace.flow.messages import CHANGE, ChangeKind
from headrace.interfaces.codec import Encoder

Words = tuple[bytes, bytes]


@dataclass(frozen=True)
class Wrapping:
    """What stands before and behind a row: of rows that are added (``INSERT``, ``UPDATE_AFTER``) and of those that are removed.

    So an update is written as its old row removed and its new row added, as Flink's formats do.
    """

    added: Words
    removed: Words
    #: The words of each kind, of a format that has such for all four.
    kinds: Mapping[int, Words] | None = None

    @classmethod
    def by_kind(cls, kinds: Mapping[int, Words]) -> Wrapping:
        return cls(kinds[ChangeKind.INSERT], kinds[ChangeKind.DELETE], kinds)

    def words(self, kind: int) -> Words:
        """Return the words of a kind."""
        if self.kinds is not None:
            return self.kinds[kind]
        return self.added if kind in (ChangeKind.INSERT, ChangeKind.UPDATE_AFTER) else self.removed


class ChangeEncoder(Encoder):
    """Encodes each row with its kind of change; rows of frames without kinds are added."""

    def __init__(self, rows: JsonEncoder, wrapping: Wrapping) -> None:
        self._rows = rows
        self._words = [wrapping.words(kind) for kind in range(ChangeKind.DELETE + 1)]

    def encode(self, frame: pl.DataFrame) -> Sequence[bytes]:
        """Return one envelope per row of ``frame``."""
        bodies = self._rows.encode(frame.drop(CHANGE, strict=False))
        kinds = frame[CHANGE].to_list() if CHANGE in frame.columns else [ChangeKind.INSERT] * len(bodies)
        words = self._words
        return [words[kind][0] + body + words[kind][1] for kind, body in zip(kinds, bodies, strict=True)]
