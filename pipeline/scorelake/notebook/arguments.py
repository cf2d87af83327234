"""What somebody may hand to `score` by mistake, refused in words before anything is read."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from difflib import get_close_matches
from os import PathLike, fspath
from typing import Any

from scorelake.errors import UsageError

ENTRIES = ("passed", "score")
"""What the entries of a matrix may be."""


def place(given: object, what: str = "out") -> str:
    """A path or an address as text."""
    if not isinstance(given, str | PathLike) or not fspath(given):
        raise UsageError(f"{what} must be a path or an address, got {given!r}")
    return str(fspath(given))


def names(given: object, what: str) -> tuple[str, ...]:
    """Names in a list, or in one text with commas between them, as the command line has them."""
    found = given.split(",") if isinstance(given, str) else given
    if not isinstance(found, Iterable) or isinstance(found, bytes | Mapping):
        raise UsageError(f"{what} must be a name or a list of names, got {given!r}")
    listed = list(found)
    for name in listed:
        if not isinstance(name, str):
            raise UsageError(f"{what} must be a name or a list of names, got {name!r} among them")
    return tuple(name.strip() for name in listed if name.strip())


def columns(given: object) -> Mapping[str, Any]:
    """Which column is what, as a dictionary."""
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise UsageError(
            f"columns must be a dictionary, got {given!r}", hint='such as columns={"model": "model_name"}'
        )
    return given


def options(given: Mapping[str, Any], known: Collection[str], more: Collection[str]) -> None:
    """Every option is known, and those that are called can be; `more` are the other arguments of score()."""
    for name, value in given.items():
        if name not in known:
            every = (*more, *known)
            near = "".join(f"did you mean {close}? " for close in get_close_matches(name, every, n=1))
            raise UsageError(f"score() has no argument {name}", hint=f"{near}known are: {', '.join(every)}")
        if name in ("progress", "say") and not callable(value):
            raise UsageError(f"{name} must be a function, got {value!r}")


def entries(given: object, matrix: bool) -> None:
    """What the entries of a matrix are, said of a matrix."""
    if given is None:
        return
    if given not in ENTRIES:
        raise UsageError(f"entries must be {' or '.join(ENTRIES)}, got {given!r}")
    if not matrix:
        raise UsageError(
            "entries is for matrices only",
            hint='of a table or a lake, say which column is what: columns={"score": ...} or {"passed": ...}',
        )
