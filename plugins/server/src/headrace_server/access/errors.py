"""Why a request is refused."""

from __future__ import annotations

from headrace.foundation.errors import HeadraceError


class AccessDeniedError(HeadraceError):
    """A request is refused. ``status`` is that of HTTP; the message is shown to the caller and holds nothing secret."""

    def __init__(
        self, status: int, message: str, *, hint: str | None = None, retry_after_seconds: int | None = None
    ) -> None:
        super().__init__(message, hint=hint)
        self.status = status
        self.retry_after_seconds = retry_after_seconds
