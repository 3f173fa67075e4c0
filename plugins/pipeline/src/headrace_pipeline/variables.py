"""The values of ``${NAME}`` in a pipeline file."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from headrace.foundation.secrecy import is_secret_name

if TYPE_CHECKING:
    from headrace_pipeline.document import Scalar

_REFERENCE = re.compile(r"\$(?P<escape>\$)?\{(?P<name>[^{}]*)\}")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
#: A place of a secret that is a text for itself: of the environment, or of a store.
_SECRET_PLACE = re.compile(r"\$\{(?:[A-Za-z]\w*:[^{}]+|\w+)\}")


class Variables:
    """The values of ``${NAME}``: those that are given (``--set``, ``variables:`` of a server), then the environment, then defaults.

    ``${HERE}`` is the directory of the file.
    """

    def __init__(self, given: Mapping[str, str], directory: str) -> None:
        self._given = {**given, "HERE": directory}
        #: Of the file's own ``variables:``, which are read after the file.
        self.defaults: dict[str, str] = {}

    def fill(self, scalar: Scalar) -> str:
        """Return a text with its variables filled in; ``$${NAME}`` is the text ``${NAME}``.

        Raises PipelineError for a name without a value, and for one that says that it is a secret: the text would be shown in plans.
        """

        def value_of(found: re.Match[str]) -> str:
            if found["escape"]:
                return found[0][1:]
            name, place = found["name"], scalar.place_of(found.start())
            if not _NAME.fullmatch(name):
                raise scalar.error(
                    f"{found[0]!r} is not a variable", place=place, hint=f"write ${found[0]} for the text itself"
                )
            if is_secret_name(name):
                raise scalar.error(
                    f"{name!r} is the name of a secret, and a value here is shown in plans and logs", place=place,
                    hint="secrets are for options such as password, which take ${NAME} and nothing else",
                )  # fmt: skip
            value = self._given.get(name, os.environ.get(name, self.defaults.get(name)))
            if value is None:
                raise scalar.error(
                    f"the variable {name!r} has no value", place=place,
                    hint=f"give it with --set {name}=…, in the environment, or a default below variables:",
                )  # fmt: skip
            return value

        return _REFERENCE.sub(value_of, scalar.source)

    def secret(self, scalar: Scalar) -> str:
        """Return the text of an option that is a secret. A place such as ``${NAME}`` stays as it is: it is looked up where it is used."""
        found = _REFERENCE.fullmatch(scalar.source)
        if found is not None and not found["escape"] and found["name"] in self._given:
            return self._given[found["name"]]
        if is_secret_place(scalar.source):
            return scalar.source
        if _REFERENCE.search(scalar.source):
            scalar.fail("a secret is ${NAME} and nothing else, or the secret itself")
        return scalar.source


def is_secret_place(text: str) -> bool:
    """Return whether a text is a place of a secret and nothing else: ``${NAME}``, ``${file:/run/secrets/db}``."""
    return _SECRET_PLACE.fullmatch(text) is not None
