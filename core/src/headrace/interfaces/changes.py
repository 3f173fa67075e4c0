"""How a source or a format describes rows that change: the key, and whether old rows come with the new ones."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SourceChanges:
    """Declares that the rows of a source or a format insert, update and delete the rows of a table.

    Each row has its ``ChangeKind`` in the column ``CHANGE``. ``Source.changes`` or ``Codec.changes`` returns it when
    the job is built.
    """

    #: The columns that identify a row of the table, where the source knows them. The option ``key=`` of a job has
    #: priority.
    key: tuple[str, ...] | None = None
    #: True: an update is given as two rows, its old and its new one, and a delete has all columns of the old row.
    #: False: an update is only the new row (``UPDATE_AFTER``, also for a row that is new), and of a deleted row only
    #: the key is certain.
    before_images: bool = True
    #: Whether changes may be repeated, or may change nothing. Then each row is compared with the last row of its key.
    repeats: bool = False

    @property
    def needs_normalizing(self) -> bool:
        """Whether the rows become a changelog only when each is compared with the last row of its key."""
        return self.repeats or not self.before_images
