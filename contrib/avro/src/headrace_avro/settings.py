"""The options of the format."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

from headrace.foundation.errors import OptionError
from headrace.interfaces import settings as declared
from headrace.interfaces.format_parts import MaxBodyBytes
from headrace.interfaces.settings import option

_NAME = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*", re.ASCII)


class AvroSettings(declared.Settings, frozen=True, kw_only=True):
    """Options of the format ``avro``."""

    avro_schema: Annotated[
        str | None,
        option(
            "Avro schema, as JSON text, that the bodies are written with. Default: a record of the declared columns, each of which may be "
            "null."
        ),
    ] = None
    avro_schema_file: Annotated[
        str | None, option("File with this schema, in place of avro_schema. It is read when the job is built.")
    ] = None
    reader_schema: Annotated[
        str | None,
        option(
            "Avro schema, as JSON text, that a source reads the bodies as, by Avro's rules of schema resolution. Default: the schema that "
            "they are written with."
        ),
    ] = None
    reader_schema_file: Annotated[
        str | None, option("File with this schema, in place of reader_schema. It is read when the job is built.")
    ] = None
    record_name: Annotated[str, option("Full name of the record that is made of the declared columns.")] = "record"
    max_body_bytes: MaxBodyBytes = 16 * 1024 * 1024

    def validate(self) -> None:
        """Check that options do not contradict each other."""
        for name in ("avro_schema", "reader_schema"):
            if getattr(self, name) is not None and getattr(self, f"{name}_file") is not None:
                raise OptionError(
                    f"it takes the place of {name}", plugin="avro", option=f"{name}_file", hint="give one"
                )
        check_record_name(self.record_name, "avro")


def check_record_name(name: str, plugin: str) -> None:
    """Raise OptionError for a text that is not a full name of Avro."""
    if not _NAME.fullmatch(name):
        raise OptionError(
            f"{name!r} is not a full name of a record",
            plugin=plugin,
            option="record_name",
            hint="letters, digits and _ in parts that are separated by points, such as com.example.event",
        )


def schema_text(text: str | None, file: str | None, *, plugin: str, option: str) -> str | None:
    """Return the text of a schema that is given itself or by its file. Raises OptionError for a file that cannot be read."""
    if file is None:
        return text
    try:
        return Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise OptionError(f"cannot read {file!r}: {why}", plugin=plugin, option=option) from error
