"""Notices: sentences on what in a text has no effect here."""

from __future__ import annotations


class Notices(list[str]):
    """The notices of a script, in the order of the text."""

    def add_once(self, notice: str) -> None:
        """Add a notice unless it exists: a notice about a table is given once, however often the table is named."""
        if notice not in self:
            self.append(notice)
