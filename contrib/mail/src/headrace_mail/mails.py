"""Rows as mails."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from email.message import EmailMessage
from email.policy import SMTP
from typing import Any

import msgspec
import polars as pl
from headrace.flow.messages import ROW, Position
from headrace.flow.rows import pack_rows
from headrace.flow.schema import Schema
from headrace.interfaces.registry import default_registry
from headrace.interfaces.sink import SinkBatch

from headrace_mail.settings import ADDRESS, PLACE, MailSinkSettings

_SUBJECT_CHARACTERS_MAX = 200
_encode = msgspec.json.Encoder(decimal_format="string").encode


@dataclass(frozen=True, slots=True)
class Mail:
    """Rows that go to the same addresses, as indexes in the batch."""

    to: tuple[str, ...]
    rows: tuple[int, ...]


class BadAddressError(ValueError):
    """A row names no address that mail can be sent to; the text says why."""


def addresses_of(row: Mapping[str, Any], settings: MailSinkSettings) -> tuple[str, ...]:
    """Return the addresses that get a row. Raises BadAddressError."""
    if settings.to_column is None:
        return settings.to
    found = tuple(part for part in (each.strip() for each in str(row.get(settings.to_column) or "").split(",")) if part)
    if not found:
        raise BadAddressError(f"column {settings.to_column!r} has no address")
    for address in found:
        if not ADDRESS.fullmatch(address):
            raise BadAddressError(f"{address[:100]!r} is not an address")
    return tuple(dict.fromkeys(found))


def text_of(template: str, row: Mapping[str, Any], **others: Any) -> str:
    """Return a template with the values of a row. NULL and a missing column become an empty text."""

    def value(name: str) -> str:
        found = {**row, **others}.get(name)
        if found is None or isinstance(found, str):
            return found or ""
        return str(_encode(found).decode().strip('"'))

    return str(PLACE.sub(lambda match: value(match[1]), template))


def lines_of(batch: SinkBatch, settings: MailSinkSettings, schema: Schema | None) -> Sequence[str]:
    """Return the text of each row: by the template, or without one as JSON. Raises DataError for a row that JSON
    cannot hold.
    """
    if settings.line is not None:
        return [text_of(settings.line, row) for row in batch.rows()]
    codec = default_registry().find("codec", "json")
    if batch.dynamic:
        frame = pl.DataFrame({ROW: pack_rows(batch.rows())}, schema={ROW: pl.Binary})
    else:
        frame = batch.to_polars()
        if not frame.width:
            return ["{}"] * len(batch)
    return [bytes(line).decode() for line in codec(codec.Settings()).encoder(schema).encode(frame)]


def message_of(
    first: Mapping[str, Any], lines: Sequence[str], to: Sequence[str], id: str, settings: MailSinkSettings
) -> EmailMessage:
    """Return the mail of some rows; ``first`` is the first of them. The same rows always have the same ``id``."""
    message = EmailMessage(policy=SMTP)
    message["From"] = settings.sender
    message["To"] = ", ".join(to)
    # A value of a row must not add another header.
    message["Subject"] = " ".join(text_of(settings.subject, first, rows=len(lines)).split())[:_SUBJECT_CHARACTERS_MAX]
    message["Date"] = datetime.now(UTC)
    message["Message-ID"] = f"<{id}@{settings.sender.rpartition('@')[2]}>"
    message["Auto-Submitted"] = "auto-generated"
    message.set_content("\n".join(lines) + "\n")
    return message


def id_of(writer: str, queue: str, first: Position, last: Position, to: Sequence[str]) -> str:
    """Return the id of a mail: always the same for the same rows of a job to the same addresses."""
    place = "\0".join((writer, queue, f"{first.offset}.{first.index}", f"{last.offset}.{last.index}", *to))
    return hashlib.sha256(place.encode()).hexdigest()[:32]
