"""Thrift's compact protocol, as far as Parquet's footers and page headers need it: bytes in, plain values out."""

from __future__ import annotations

from typing import Any

_STOP, _TRUE, _FALSE, _BYTE, _DOUBLE, _BINARY, _LIST, _SET, _MAP, _STRUCT = 0, 1, 2, 3, 7, 8, 9, 10, 11, 12
_INTEGERS = (4, 5, 6)


def struct(data: bytes, at: int) -> tuple[dict[int, Any], int]:
    """Fields of a struct by their numbers, and the place after it. Raises IndexError or ValueError on nonsense."""
    fields: dict[int, Any] = {}
    field = 0
    while data[at] != _STOP:
        kind, step = data[at] & 15, data[at] >> 4
        at += 1
        if step:
            field += step
        else:
            field, at = _integer(data, at)
        fields[field], at = _value(data, at, kind)
    return fields, at + 1


def _value(data: bytes, at: int, kind: int) -> tuple[Any, int]:
    out: tuple[Any, int]
    if kind in (_TRUE, _FALSE):
        out = kind == _TRUE, at
    elif kind in _INTEGERS:
        out = _integer(data, at)
    elif kind == _BINARY:
        length, at = _varint(data, at)
        if at + length > len(data):
            raise ValueError("a text longer than what is left")
        out = data[at : at + length], at + length
    elif kind in (_BYTE, _DOUBLE):
        width = 1 if kind == _BYTE else 8
        out = data[at : at + width], at + width
    elif kind in (_LIST, _SET):
        out = _list(data, at)
    elif kind == _STRUCT:
        out = struct(data, at)
    else:
        raise ValueError(f"unknown kind {kind}")
    return out


def _list(data: bytes, at: int) -> tuple[list[Any], int]:
    many, inner = data[at] >> 4, data[at] & 15
    at += 1
    if many == 15:
        many, at = _varint(data, at)
    if many > len(data) - at:
        raise ValueError("a list longer than what is left")
    items = []
    for _ in range(many):
        item, at = (data[at] == 1, at + 1) if inner in (_TRUE, _FALSE) else _value(data, at, inner)
        items.append(item)
    return items, at


def _integer(data: bytes, at: int) -> tuple[int, int]:
    number, at = _varint(data, at)
    return number >> 1 ^ -(number & 1), at


def _varint(data: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        byte = data[at]
        number |= (byte & 127) << shift
        at += 1
        if byte < 128:
            return number, at
        shift += 7
        if shift > 63:
            raise ValueError("a number longer than 64 bits")
