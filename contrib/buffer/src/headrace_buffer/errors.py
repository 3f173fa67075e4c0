"""What a buffer raises beside the errors of headrace."""

from headrace.foundation.errors import RetriableError


class BufferFullError(RetriableError):
    """The buffer has no room within the time-out of an append. Nothing of the append was stored: it can be tried again."""
