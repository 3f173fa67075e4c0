"""Hashes. Text is hashed as its UTF-8 bytes."""

from __future__ import annotations

import functools
import hashlib
import zlib

import polars as pl
from headrace_columnar.registry import Call, function
from headrace_columnar.rowwise import map_values


def _hex_digest(algorithm: str, data: bytes) -> str:
    # These are fingerprints that SQL asks for by name; nothing here relies on them for security.
    digest: str = getattr(hashlib, algorithm)(data, usedforsecurity=False).hexdigest()
    return digest


def _digest(algorithm: str, *names: str, answer: str) -> None:
    shown = algorithm.upper().replace("SHA", "SHA-") if algorithm != "md5" else "MD5"

    @function(
        *names,
        signature="data bytes -> string",
        summary=f"The {shown} hash, in hexadecimal digits.",
        examples=[(f"{names[0]}('abc')", answer)],
    )
    def build(call: Call) -> pl.Expr:
        return map_values(call[0], functools.partial(_hex_digest, algorithm), pl.String())


_digest("md5", "md5", answer="900150983cd24fb0d6963f7d28e17f72")
_digest("sha1", "sha1", "sha", answer="a9993e364706816aba3e25717850c26c9cd0d89d")
_digest("sha224", "sha224", answer="23097d223405d8228642a477bda255b32aadbce4bda0b3f7e36c9da7")
_digest("sha256", "sha256", answer="ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad")
_digest(
    "sha384",
    "sha384",
    answer="cb00753f45a35e8bb5a03d699ac65007272c32ab0eded1631a8b605a43ff5bed8086072ba1e7cc2358baeca134c825a7",
)
_digest(
    "sha512",
    "sha512",
    answer="ddaf35a193617abacc417349ae20413112e6fa4e89a97ea20a9eeee64b55d39a"
    "2192992a274fc1a836ba3c23a3feebbd454d4423643ce80e2a9ac94fa54ca49f",
)


@function(
    "sha2",
    signature="data bytes, bits constant integer -> string",
    summary="The SHA-2 hash with 224, 256 (also written 0), 384 or 512 bits, in hexadecimal digits.",
    examples=[("sha2('abc', 224)", "23097d223405d8228642a477bda255b32aadbce4bda0b3f7e36c9da7")],
)
def sha2(call: Call) -> pl.Expr:
    bits = call.constant(1) or 256
    if bits not in (224, 256, 384, 512):
        raise call.error(1, f"bits must be 224, 256, 384 or 512, not {bits}")
    return map_values(call[0], functools.partial(_hex_digest, f"sha{bits}"), pl.String())


@function(
    "crc32",
    signature="data bytes -> int64",
    summary="The CRC-32 check sum.",
    examples=[("crc32('Spark')", 1557323817)],
)
def crc32(call: Call) -> pl.Expr:
    return map_values(call[0], zlib.crc32, pl.Int64())


@function(
    "hash_code",
    signature="text string -> int64",
    summary="The absolute value of Java's String.hashCode, as in Flink.",
    examples=[("hash_code('k1=v1;k2=v2')", 1099348823)],
)
def hash_code(call: Call) -> pl.Expr:
    return map_values(call[0], _java_hash, pl.Int64())


def _java_hash(text: str) -> int:
    # Java: the sum of UTF-16 units times powers of 31, in 32 bits with sign.
    data = text.encode("utf-16-le", errors="surrogatepass")
    total = 0
    for place in range(0, len(data), 2):
        total = (total * 31 + data[place] + (data[place + 1] << 8)) & 0xFFFFFFFF
    return 2**32 - total if total >= 2**31 else total
