"""The options of the format."""

from __future__ import annotations

from typing import Annotated

from headrace.interfaces import settings as declared
from headrace.interfaces.format_parts import MaxBodyBytes
from headrace.interfaces.settings import option


class ProtobufSettings(declared.Settings, frozen=True, kw_only=True):
    """Options of the format ``protobuf``."""

    descriptor_file: Annotated[
        str,
        option(
            "File with the descriptor set, made by protoc --include_imports --descriptor_set_out. It is read when the job is built."
        ),
    ]
    message: Annotated[str, option("Full name of the message that a body holds, such as shop.Order.")]
    null_as_default: Annotated[
        bool,
        option(
            "Whether a sink leaves out a field for NULL that has no presence, so that readers see its default (0, an empty text). False: "
            "such a row is refused."
        ),
    ] = False
    max_body_bytes: MaxBodyBytes = 16 * 1024 * 1024
