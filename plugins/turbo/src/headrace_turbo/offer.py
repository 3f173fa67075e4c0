"""What core calls for a faster decoder: it imports the one that uses the kernel, and what that needs, only where there is a kernel."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace_turbo.library import library

if TYPE_CHECKING:
    from headrace.interfaces.codec import Decoder, DecoderRequest


def faster_json_decoder(request: DecoderRequest) -> Decoder | None:
    """Return a decoder that uses the kernel, or None: there is no kernel here, or a column is of a type that it does not have."""
    kernel = library()
    if kernel is None:
        return None
    from headrace_turbo.json_decoder import decoder_of

    return decoder_of(kernel, request)
