"""The URLs of exporters."""

from __future__ import annotations

from urllib.parse import SplitResult, parse_qsl, urlsplit

from headrace.foundation.errors import OptionError, did_you_mean


def parts_of(url: str, *, default_port: int, options: tuple[str, ...] = ()) -> tuple[SplitResult, int, dict[str, str]]:
    """Return the parts of a URL, its port and its options. Raises OptionError without quoting what may be a secret."""
    try:
        parts = urlsplit(url)
        port = default_port if parts.port is None else parts.port
    except ValueError as error:
        raise OptionError(f"unusable URL: {error}", option="metrics") from None
    if parts.username is not None or parts.password is not None:
        raise OptionError(
            "the URL of an exporter must not contain user and password",
            option="metrics",
            hint="write a token for Prometheus into a file (?token_file=…), and headers for OTLP into OTEL_EXPORTER_OTLP_HEADERS",
        )
    given = dict(parse_qsl(parts.query, keep_blank_values=True))
    for name in given:
        if name not in options:
            raise OptionError(
                f"a {parts.scheme} URL has no option {name!r}",
                option="metrics",
                hint=did_you_mean(name, options, known="options") if options else "it has no options at all",
            )
    if not parts.hostname:
        raise OptionError("the URL names no host", option="metrics", hint=f"{parts.scheme}://127.0.0.1:{default_port}")
    return parts, port, given
