"""The states of user aggregates as bytes, for checkpoints and shuffles.

They are MessagePack. Values that MessagePack would turn into texts (decimals, times, sets), and the rows and views of PyFlink, are
kept as extensions, so that a function gets the same values back. Tuples come back as lists.
"""

from __future__ import annotations

import datetime
import importlib
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any

import msgspec

_PLAIN = (type(None), bool, int, float, str, bytes)
_DECIMAL, _DATETIME, _DATE, _TIME, _SET, _ROW, _LIST_VIEW, _MAP_VIEW, _DURATION, _DICT = range(1, 11)
_PACK = msgspec.msgpack.encode


def packed(state: Any) -> bytes:
    """Return a state as bytes. Raises TypeError, ValueError or OverflowError for what cannot be kept."""
    return _PACK(_kept(state))


def unpacked(content: bytes) -> Any:
    """Return the state that ``packed`` has made bytes of."""
    return msgspec.msgpack.decode(content, ext_hook=_given_back)


def _kept(value: Any) -> Any:
    if isinstance(value, _PLAIN):
        return value
    if type(value) is list or type(value) is tuple:
        return [_kept(each) for each in value]
    if type(value) is dict:
        if all(isinstance(key, _PLAIN) for key in value):
            return {key: _kept(each) for key, each in value.items()}
        return msgspec.msgpack.Ext(_DICT, packed([list(each) for each in value.items()]))
    if isinstance(value, Decimal):
        return msgspec.msgpack.Ext(_DECIMAL, str(value).encode())
    for code, kind in ((_DATETIME, datetime.datetime), (_DATE, datetime.date), (_TIME, datetime.time)):
        if isinstance(value, kind):
            return msgspec.msgpack.Ext(code, value.isoformat().encode())
    if isinstance(value, datetime.timedelta):
        return msgspec.msgpack.Ext(_DURATION, _PACK([value.days, value.seconds, value.microseconds]))
    if isinstance(value, set | frozenset):
        # In one order, so that equal states have equal bytes.
        return msgspec.msgpack.Ext(_SET, _PACK(sorted(_PACK(_kept(each)) for each in value)))
    return _of_pyflink(value)


def _of_pyflink(value: Any) -> Any:
    if type(value).__module__.partition(".")[0] == "pyflink":
        name = type(value).__name__
        if name == "Row":
            return msgspec.msgpack.Ext(_ROW, packed([getattr(value, "_fields", None), list(value)]))
        if name == "ListView":
            return msgspec.msgpack.Ext(_LIST_VIEW, packed(list(value.get())))
        if name == "MapView":
            return msgspec.msgpack.Ext(_MAP_VIEW, packed([list(each) for each in value.items()]))
    return value


def _given_back(code: int, content: memoryview) -> Any:
    data = bytes(content)
    if code in (_ROW, _LIST_VIEW, _MAP_VIEW):
        return _pyflink_value(code, unpacked(data))
    if code == _DICT:
        return dict(unpacked(data))
    if code == _SET:
        return {unpacked(each) for each in msgspec.msgpack.decode(data)}
    if code == _DURATION:
        days, seconds, microseconds = msgspec.msgpack.decode(data)
        return datetime.timedelta(days, seconds, microseconds)
    read: Mapping[int, Callable[[str], Any]] = {
        _DECIMAL: Decimal, _DATETIME: datetime.datetime.fromisoformat, _DATE: datetime.date.fromisoformat,
        _TIME: datetime.time.fromisoformat,
    }  # fmt: skip
    if code not in read:
        raise ValueError(f"a state of an unknown kind ({code}), probably of a newer version")
    return read[code](data.decode())


def _pyflink_value(code: int, content: Any) -> Any:
    """Return a row or view of PyFlink, which is there where the function is that has made it."""
    if code == _ROW:
        fields, values = content
        row = importlib.import_module("pyflink.common").Row
        return row(*values) if not fields else row(**dict(zip(fields, values, strict=True)))
    views = importlib.import_module("pyflink.table.data_view")
    if code == _LIST_VIEW:
        made = views.ListView()
        made.add_all(content)
        return made
    made = views.MapView()
    made.put_all(dict(content))
    return made
