"""The options of ``avro-confluent``: those of the registry, and the schemas that are written and read."""

from __future__ import annotations

from typing import Annotated, ClassVar

from headrace.interfaces.settings import option
from headrace_schemaregistry import RegistrySettings

from headrace_avro.settings import check_record_name

FORMAT = "avro-confluent"


class ConfluentSettings(RegistrySettings, frozen=True, kw_only=True):
    """Options of the format ``avro-confluent``."""

    format_name: ClassVar[str] = FORMAT

    avro_schema: Annotated[
        str | None,
        option(
            "Avro schema, as JSON text, that a sink writes. Default: a record of the columns, each of which may be null; with "
            "register_schema=False the latest version of the subject."
        ),
    ] = None
    avro_schema_file: Annotated[
        str | None, option("File with this schema, in place of avro_schema. It is read when the job is built.")
    ] = None
    reader_schema: Annotated[
        str | None,
        option(
            "Avro schema, as JSON text, that a source reads all bodies as, by Avro's rules of schema resolution. Default: fields become "
            "columns by their names, and a column that a body's schema does not have is NULL."
        ),
    ] = None
    reader_schema_file: Annotated[
        str | None, option("File with this schema, in place of reader_schema. It is read when the job is built.")
    ] = None
    record_name: Annotated[str, option("Full name of the record that is made of the columns.")] = "record"

    def validate(self) -> None:
        """Check the address, and that options do not contradict each other. Errors never quote what may be a password."""
        for name in ("avro_schema", "reader_schema"):
            if getattr(self, name) is not None and getattr(self, f"{name}_file") is not None:
                raise self.refused(f"{name}_file", f"it takes the place of {name}", "give one")
        check_record_name(self.record_name, FORMAT)
        super().validate()
