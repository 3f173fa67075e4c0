"""Loads the compiled kernel, and says what its functions take. Imports nothing that takes long: planners of Spark only count lines.

The library stands beside this file. It is compiled when the package is built (``hatch_build.py``). Its interface is described in
``kernel/src/lib.rs``.
"""

from __future__ import annotations

import ctypes
import functools
import logging
import sys
from pathlib import Path
from typing import Any

logger = logging.getLogger(__name__)
INTERFACE_VERSION = 3
LIBRARY = Path(__file__).with_name(f"libheadrace_turbo_kernel.{'dylib' if sys.platform == 'darwin' else 'so'}")

_Numbers = ctypes.POINTER(ctypes.c_uint64)


@functools.cache
def library() -> ctypes.CDLL | None:
    """Return the kernel, or None where the package was built without a compiler or for another version of this interface."""
    if not LIBRARY.exists():
        return None
    try:
        found = ctypes.CDLL(str(LIBRARY))
        found.headrace_turbo_version.restype = ctypes.c_int64
        if (version := found.headrace_turbo_version()) != INTERFACE_VERSION:
            logger.warning(
                "headrace-turbo is not used: its kernel has version %d of the interface and the package %d; install the package again",
                version,
                INTERFACE_VERSION,
            )
            return None
    except (OSError, AttributeError):
        return None
    address, size = ctypes.c_void_p, ctypes.c_size_t
    for name, result, arguments in (
        ("decoder", address, [ctypes.c_char_p, size]),
        ("decoder_free", None, [address]),
        ("decode", address, [address, address, size, address, address, size, size]),
        ("batch", None, [address, _Numbers]),
        ("take", address, [address, size, _Numbers]),
        ("buffer_free", None, [address]),
        ("batch_free", None, [address]),
        ("find_byte", size, [address, size, ctypes.c_uint8, size, address, size]),
        ("count_byte", size, [address, ctypes.c_uint8, size, size]),
    ):
        function = getattr(found, f"headrace_turbo_{name}")
        function.restype, function.argtypes = result, arguments
    later: list[tuple[str, Any, list[Any]]] = [
        ("text_sums", ctypes.c_bool, [address, size, address, size, address]),
        ("group", size, [address, size, size, address, address]),
        ("sum", ctypes.c_bool, [address, size, size, address, size, address]),
    ]
    for name, result, arguments in later:
        # A kernel that was compiled before there was this function serves for the rest.
        if (function := getattr(found, f"headrace_turbo_{name}", None)) is not None:
            function.restype, function.argtypes = result, arguments
    return found
