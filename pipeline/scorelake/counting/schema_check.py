"""What a file lacks of the columns that are wanted of it, and which of its columns may be meant."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from scorelake.schemas import ALIASES


@dataclass(frozen=True)
class Misfit:
    """One thing that a file does not have, or has in a type that cannot be counted."""

    key: str
    """What is asked for: a key of [columns], or protocol, carry or by."""
    what: str
    """What is wrong, without a suggestion."""
    name: str | None = None
    """The column that is not there; None for one that is there and does not fit."""


class UnreadableError(Exception):
    """A file that cannot be counted; the message is the reason given in the quarantine table."""

    def __init__(self, reason: str, misfits: Sequence[Misfit] = (), columns: Sequence[str] = ()) -> None:
        super().__init__(reason)
        self.misfits, self.columns = tuple(misfits), tuple(columns)
        """What of its columns does not fit, if that is all that is wrong, and which it has."""


def unfit(misfits: Sequence[Misfit], columns: Sequence[str], folders: Sequence[str]) -> UnreadableError:
    """One file's misfits as the reason why it cannot be counted."""
    reasons = "; ".join(suggested(misfit, [*columns, *folders]) for misfit in misfits)
    available = ", ".join([*columns, *(f"{key} (folder)" for key in folders)]) or "none"
    return UnreadableError(f"{reasons}; the file has: {available}", misfits, [*columns, *folders])


def suggested(misfit: Misfit, columns: Iterable[str]) -> str:
    near = closest(misfit, columns)
    return misfit.what + (f" (closest: {', '.join(near)})" if near else "")


def closest(misfit: Misfit, columns: Iterable[str], most: int = 3) -> list[str]:
    """Columns that may be meant by one that is not there, the likeliest first: the same name but for its spelling,
    then what other tools call it, then names that look alike."""
    if misfit.name is None:
        return []
    bare: dict[str, list[str]] = {}
    for column in columns:
        bare.setdefault(_bare(column), []).append(column)
    wanted = [_bare(misfit.name), *(_bare(alias) for alias in ALIASES.get(misfit.key, ()))]
    alike = difflib.get_close_matches(wanted[0], bare, n=most, cutoff=0.6)
    names = (name for candidate in (*wanted, *alike) for name in bare.get(candidate, ()))
    return list(dict.fromkeys(names))[:most]


def _bare(name: str) -> str:
    """A name without case and punctuation: Model-Name is model_name."""
    return "".join(letter for letter in name.casefold() if letter.isalnum()) or name
