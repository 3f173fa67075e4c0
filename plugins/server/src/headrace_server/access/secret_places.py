"""Secrets by their names: where each lies, and texts in which they are masked."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from headrace.foundation.errors import OptionError, did_you_mean
from headrace.foundation.secrecy import masked
from headrace.interfaces.settings import Secret

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_PLACE = re.compile(r"\$\{(?:(?P<store>[A-Za-z]\w*):(?P<place>[^{}]+)|(?P<variable>\w+))\}")
#: Shorter values occur in texts by chance; masking them would make texts unreadable and the values easy to guess.
_MASKED_LENGTH_MIN = 4


class SecretPlaces:
    """Secrets of jobs by name, such as ``{"database_password": "${file:/run/secrets/db}"}``.

    Places are those of ``headrace.Secret``: a variable of the environment, a file, or a store that a plug-in offers
    (``headrace_secret_stores``). A value itself is refused: job.yaml is shown, compared and kept in git.
    """

    def __init__(self, places: Mapping[str, str]) -> None:
        for name, place in places.items():
            if not _NAME.fullmatch(name):
                raise OptionError(f"{name!r} is not a name of a secret", option="secrets", hint="letters, digits and _")
            if not _PLACE.fullmatch(place):
                raise OptionError(  # without the text, which may be the secret
                    f"the secret {name!r} must be given by the place where it is stored",
                    option="secrets",
                    hint="write ${VARIABLE}, ${file:/path} or ${STORE:PLACE}",
                )
        self._places = dict(places)

    def names(self) -> list[str]:
        """Return the names; these are what API answers hold."""
        return sorted(self._places)

    def reveal(self, name: str) -> str:
        """Return a secret. Called where it is handed to a job, never for an answer.

        Raises OptionError when it is unknown, is not there, or lies in a file that others can read.
        """
        if name not in self._places:
            raise OptionError(
                f"there is no secret {name!r}", option="secrets", hint=did_you_mean(name, self._places, known="secrets")
            )
        found = _PLACE.fullmatch(self._places[name])
        assert found is not None
        if found["store"] == "file":
            _check_file(name, Path(found["place"]))
        return Secret(self._places[name]).reveal()

    def __repr__(self) -> str:
        return f"SecretPlaces({', '.join(self.names())})"


def _check_file(name: str, path: Path) -> None:
    try:
        status = path.stat()
    except OSError as error:
        raise OptionError(
            f"the file {str(path)!r} of the secret {name!r} cannot be read: {error.strerror}", option="secrets"
        ) from None
    # Of root a group may read it: so Kubernetes mounts a secret for a user.
    allowed = 0o740 if status.st_uid == 0 else 0o700
    if status.st_mode & 0o777 & ~allowed or status.st_uid not in (os.getuid(), 0):
        raise OptionError(
            f"the file {str(path)!r} of the secret {name!r} can be read or changed by other users",
            option="secrets",
            hint=f"chmod 600 {path}, as the user of the server",
        )


def without_secrets(text: str, values: Iterable[str] = ()) -> str:
    """Return a text with the given values, and whatever its names mark as secret, as stars."""
    for value in sorted(set(values), key=len, reverse=True):
        if len(value) >= _MASKED_LENGTH_MIN:
            text = text.replace(value, "***")
    return masked(text)
