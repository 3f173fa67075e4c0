"""Signatures of bodies, which the sink sends and the source checks."""

from __future__ import annotations

import hashlib
import hmac

PREFIX = "sha256="


def signature_of(key: bytes, body: bytes) -> str:
    """Return the signature of a body as it is sent: ``sha256=`` and the HMAC (RFC 2104) with SHA-256 in hexadecimal
    digits.
    """
    return PREFIX + hmac.new(key, body, hashlib.sha256).hexdigest()
