"""Notes of a sink that keeps positions in a database: which job wrote its rows. Shared by such sinks.

A sink reads and writes the notes by ``OutputNotes``; ``adopted`` decides whether a start of a job may add to the stored
rows.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol
from zlib import crc32

from headrace.foundation.errors import JobError
from headrace.interfaces.output_definition import InputRead, OutputDefinition

#: Replaces the queue's name in the row that names the job of a writer's rows.
NOTE = "#job"
_EARLIER_MAX = 20
#: The definition of the rows is stored in this number of pieces, each a row of the table. It is for people to read, so
#: a larger one is not stored.
_PIECE_CHARACTERS = 900
_PIECES_MAX = 64


@dataclass(frozen=True, slots=True)
class OutputNote:
    """The job of a writer's rows: stored as a row of the table of positions, so that no other table and no other right
    is needed.

    ``complete``: the input for which the table has all results of the job, if there is one.
    """

    digest: str
    earlier: tuple[str, ...] = ()
    complete: InputRead | None = None

    def to_text(self) -> str:
        """Return a text of at most 1,000 characters; ``from_text`` reads it."""
        complete = None if self.complete is None else self.complete.to_json()
        text = json.dumps({"digest": self.digest, "earlier": self.earlier[:_EARLIER_MAX], "complete": complete})
        return f"{NOTE} {crc32(text.encode()):08x} {text}"

    @classmethod
    def from_text(cls, content: str) -> OutputNote:
        """Read the text of a note. Raises ValueError, KeyError or TypeError for any other text."""
        _, checksum, text = content.split(" ", 2)
        if int(checksum, 16) != crc32(text.encode()):
            raise ValueError("its checksum does not match")
        value = json.loads(text)
        earlier = tuple(str(digest) for digest in value["earlier"])
        return cls(str(value["digest"]), earlier, InputRead.from_json(value["complete"]))


def definition_pieces(definition: Mapping[str, Any]) -> list[str]:
    """Return a definition as texts of at most 1,000 characters; none when it is too large to be stored."""
    text = base64.b64encode(zlib.compress(json.dumps(definition, default=str).encode())).decode()
    pieces = [f"{NOTE} {text[at : at + _PIECE_CHARACTERS]}" for at in range(0, len(text), _PIECE_CHARACTERS)]
    return pieces if len(pieces) <= _PIECES_MAX else []


def definition_of(pieces: Mapping[int, str]) -> Mapping[str, Any] | None:
    """Return the definition that pieces contain, given by their numbers; None: they contain no definition."""
    try:
        content = "".join(pieces[number].removeprefix(NOTE + " ") for number in range(len(pieces)))
        value = json.loads(zlib.decompress(base64.b64decode(content, validate=True)))
    except (ValueError, KeyError, zlib.error):
        return None
    return value if isinstance(value, dict) else None


class OutputNotes(Protocol):
    """The notes in a sink's database about one writer's rows. Each method is a separate transaction."""

    def note(self) -> OutputNote | None:
        """Return the note about the job that wrote the rows; None: there is none."""

    def keep_note(self, note: OutputNote) -> None:
        """Store it."""

    def definition(self) -> Mapping[str, Any] | None:
        """Return the definition of the rows, for people; None: it is not there."""

    def keep_definition(self, definition: Mapping[str, Any]) -> None:
        """Store it."""

    def any(self) -> bool:
        """Return whether there is a position of any queue."""

    def forget(self) -> None:
        """Remove the positions and the notes."""

    def holds_rows(self) -> bool:
        """Return whether the output has rows at all."""


def adopted(
    notes: OutputNotes, output: OutputDefinition, *, replaces_rows: bool, refused: Callable[[str], JobError]
) -> InputRead | None:
    """Compare the job with the job of the stored rows, and store a note about it. Return the input for which all
    results are stored, or None.

    ``Sink.adopt`` calls it. ``replaces_rows``: repeated rows replace the rows with their key. ``refused`` makes an
    error from a reason; this error is raised if the rows belong to another job.
    """
    note = notes.note()
    if notes.any():
        holds_rows = notes.holds_rows()
        goes_on = note is None or output.goes_on(note.digest, note.earlier)
        if holds_rows and (output.replace or not goes_on):
            why = "rows of a table cannot be removed"
            if not output.replace:
                why = "it holds the output of another job with the same name: rows of this job would be taken for those"
                stored = notes.definition()
                why += "" if stored is None else f"\n{output.difference_from(stored)}"
            raise refused(why)
        if not holds_rows and (output.replace or not goes_on):
            notes.forget()
            note = None
        # Repeated rows do no harm if they replace the rows with the same key.
        elif holds_rows and output.repeats_results and not replaces_rows and note is not None:
            if note.complete is None or note.digest != output.digest:
                raise refused(
                    "it holds results of this job, from a run that did not reach the end of its input, or from several runs. Without a "
                    "checkpoint all of them are made again, and would be stored twice"
                )
            return note.complete
    if note is None or note.digest != output.digest or note.complete is not None:
        known = [] if note is None or output.continued is None else [note.digest, *note.earlier]
        earlier = tuple(digest for digest in dict.fromkeys(known) if digest != output.digest)
        notes.keep_definition(output.definition)
        notes.keep_note(OutputNote(output.digest, earlier))
    return None
