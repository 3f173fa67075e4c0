"""The mail sink: rows by SMTP, at least once, with ids by which a repeated mail is recognised."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from headrace.flow.messages import Queue, position_of
from headrace.foundation.errors import did_you_mean
from headrace.interfaces.sink import Sink, SinkBatch, SinkSettings
from headrace.interfaces.sink_progress import SinkProgress, SinkProgresses
from headrace.interfaces.table_options import OF_FLINKS_RUNTIME, TableOptions

from headrace_mail.client import Client, RefusedMailError
from headrace_mail.mails import BadAddressError, Mail, addresses_of, id_of, lines_of, message_of
from headrace_mail.settings import MailSinkSettings, refused

if TYPE_CHECKING:
    from headrace.flow.schema import Schema


class MailSink(Sink):
    """Sends rows by mail. Guarantee: at least once: a mail whose answer was lost is sent again, with the same
    Message-ID.

    See ``docs/connectors/mail.md``. May be pickled at any time; a copy makes its own connection.
    """

    Settings: ClassVar[type[SinkSettings]] = MailSinkSettings
    table_options: ClassVar[Mapping[str, TableOptions]] = {
        "mail": TableOptions({}, {"sink.parallelism": OF_FLINKS_RUNTIME})
    }

    def __init__(self, settings: MailSinkSettings) -> None:
        self.settings: MailSinkSettings = settings
        self._schema: Schema | None = None
        self._client: Client | None = None
        #: The outcome of each queue's last batch, until all of its rows are stored.
        self._progress = SinkProgresses()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_client": None, "_progress": SinkProgresses()}

    def check(self, schema: Schema | None) -> None:
        """Check the columns that the options name. Raises OptionError."""
        import polars as pl

        self._schema = schema
        if schema is None:
            return
        for name in sorted(self.settings.columns - set(schema)):
            option = "to_column" if name == self.settings.to_column else "line"
            raise refused(option, f"there is no column {name!r}", did_you_mean(name, schema, known="columns"))
        if self.settings.to_column is not None and schema[self.settings.to_column] != pl.String:
            raise refused("to_column", "an address must be text", "convert the column by an expression")

    def prepare(self, schema: Schema | None) -> None:
        """Connect and log in, so that a wrong login is found before anything is read. Raises JobError and
        RetriableError.
        """
        client = Client(self.settings)
        try:
            client.connect()
        finally:
            client.close()

    def batch_insert(self, batch: SinkBatch) -> None:
        """Send the rows that are not sent yet. Raises RetriableError, JobError, and DataError when rows are refused."""
        progress, place = self._progress.begin(batch)
        todo = progress.to_do(place)
        if len(todo):
            rows, lines = batch.rows(), lines_of(batch, self.settings, self._schema)
            for mail in self._mails(rows, [int(row) - place.start for row in todo], progress, place.start):
                self._send(mail, batch, rows, lines, progress, place.start)
        self._progress.end(batch, place, "mail")

    def queue_removed(self, queue: Queue) -> None:
        """Drop the outcome of the queue's last batch."""
        self._progress.forget(queue)

    def close(self) -> None:
        """Close the connection."""
        client, self._client = self._client, None
        if client is not None:
            client.close()
        self._progress.clear()

    def _mails(
        self, rows: Sequence[Mapping[str, Any]], places: Sequence[int], progress: SinkProgress, first: int
    ) -> Iterator[Mail]:
        """Divide rows into mails, in order, by their addresses and the maximum number of rows. Rows without an address
        are refused.
        """
        waiting: dict[tuple[str, ...], list[int]] = {}
        for place in places:
            try:
                to = addresses_of(rows[place], self.settings)
            except BadAddressError as error:
                progress.refuse(place + first, str(error))
                continue
            found = waiting.setdefault(to, [])
            found.append(place)
            if len(found) == self.settings.rows_per_mail:
                yield Mail(to, tuple(waiting.pop(to)))
        for to, found in waiting.items():
            yield Mail(to, tuple(found))

    def _send(
        self,
        mail: Mail,
        batch: SinkBatch,
        rows: Sequence[Mapping[str, Any]],
        lines: Sequence[str],
        progress: SinkProgress,
        first: int,
    ) -> None:
        """Send one mail. If it is refused for all recipients, send it in halves. Raises RetriableError or JobError."""
        if self._client is None:
            self._client = Client(self.settings)
        begin, end = position_of(batch.frame, mail.rows[0]), position_of(batch.frame, mail.rows[-1])
        id = id_of(batch.writer, batch.queue.id, begin, end, mail.to)
        said = [lines[place] for place in mail.rows]
        message = message_of(rows[mail.rows[0]], said, mail.to, id, self.settings)
        try:
            unknown = self._client.send(message, mail.to)
        except RefusedMailError as error:
            if len(mail.rows) == 1:
                progress.refuse(mail.rows[0] + first, str(error))
                return
            middle = len(mail.rows) // 2
            for part in (mail.rows[:middle], mail.rows[middle:]):
                self._send(Mail(mail.to, part), batch, rows, lines, progress, first)
            return
        places = np.array(mail.rows, dtype=np.int64) + first
        if not unknown:
            progress.store(places)
            return
        reasons = "; ".join(f"{address}: {why}" for address, why in unknown.items())
        others = (
            "" if len(unknown) == len(mail.to) else f"; the other {len(mail.to) - len(unknown)} recipients have got it"
        )
        for row in places.tolist():
            progress.refuse(row, f"{self._client.where} refused {reasons}{others}")
