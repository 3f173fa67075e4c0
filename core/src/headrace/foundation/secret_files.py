"""The secret store ``file``: a secret is the content of a file."""

from __future__ import annotations

from pathlib import Path

from headrace.foundation.errors import OptionError


def read_secret_file(path: str) -> str:
    """Return the text of a file without the line break at its end: the secret store ``file``. Raises OptionError."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise OptionError(
            f"the file {path!r} of a secret cannot be read: {reason}", hint="let the user that runs the job read it"
        ) from None
    return text.removesuffix("\n").removesuffix("\r")
