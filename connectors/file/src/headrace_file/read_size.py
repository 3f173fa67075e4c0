"""How many bytes of a file to read at once."""

from __future__ import annotations

_BYTES_MIN = 64 * 1024
_FIRST_GUESS_RECORD_BYTES = 256
#: Read at once to count records: it stays in the processor's cache.
_COUNTED_BYTES = 1024 * 1024


class ReadSize:
    """Guesses by the length of the last records. ``bytes_max``: what one read takes at most, unless one record is longer."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self.record_bytes = _FIRST_GUESS_RECORD_BYTES
        #: What is read next because a record was not complete in less; 0: as guessed.
        self.window = 0

    def size(self, max_records: int, *, counts: bool) -> int:
        """Return how much to read for so many records; ``counts``: they are only counted."""
        if self.window:
            return self.window
        guess = max(min(_BYTES_MIN, self._bytes_max), min(max_records * self.record_bytes + 4096, self._bytes_max))
        return min(guess, _COUNTED_BYTES) if counts else guess

    @property
    def without_guess(self) -> int:
        """How much to read where the end is known, so that there is no need to guess."""
        return self.window or self._bytes_max

    @property
    def records(self) -> int:
        """An estimate of the number of records in one read."""
        return self._bytes_max // self.record_bytes

    def gave(self, size: int, records: int) -> None:
        """So many records were complete in so many bytes."""
        self.record_bytes = max(1, size // records)
        self.window = 0

    def grow(self, size: int, size_max: int) -> None:
        """No record was complete: read more."""
        self.window = min(max(size, self.window), size_max)
