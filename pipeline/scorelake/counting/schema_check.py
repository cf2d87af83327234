"""Find required columns that files lack, and suggest the columns that may be meant.

A column that no file has is an error of the settings, reported once with the lines that fix it. A column that only
some files lack is an error of these files, reported file by file.
"""

from __future__ import annotations

import difflib
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from scorelake.errors import DataError, ScorelakeError, UsageError, listed
from scorelake.schemas import ALIASES
from scorelake.settings import NAMING, Settings
from scorelake.text import bare, toml_text


@dataclass(frozen=True)
class Misfit:
    """One thing that a file does not have, or has in a type that cannot be counted."""

    key: str
    """What is asked for: a key of [columns], or protocol, carry or by."""
    what: str
    """What is wrong, without a suggestion."""
    name: str | None = None
    """The column that is not there; None for one that is there and does not fit."""
    others_may_have: bool = False
    """It is wrong only if no file has the column."""


class UnreadableError(Exception):
    """A file that cannot be counted; the message is the reason given in the quarantine table."""

    def __init__(self, reason: str, misfits: Sequence[Misfit] = (), columns: Sequence[str] = ()) -> None:
        super().__init__(reason)
        self.misfits, self.columns = tuple(misfits), tuple(columns)
        """What of its columns does not fit, if that is all that is wrong, and which it has."""

    def is_excused(self) -> bool:
        """The file can be counted if others have what it lacks."""
        return bool(self.misfits) and all(misfit.others_may_have for misfit in self.misfits)


def unfit(misfits: Sequence[Misfit], columns: Sequence[str], folders: Sequence[str]) -> UnreadableError:
    """One file's misfits as the reason why it cannot be counted."""
    reasons = "; ".join(_suggested(misfit, [*columns, *folders]) for misfit in misfits)
    available = ", ".join([*columns, *(f"{key} (folder)" for key in folders)]) or "none"
    return UnreadableError(f"{reasons}; the file has: {available}", misfits, [*columns, *folders])


def _suggested(misfit: Misfit, columns: Iterable[str]) -> str:
    near = _closest(misfit, columns)
    return misfit.what + (f" (closest: {', '.join(near)})" if near else "")


def _closest(misfit: Misfit, columns: Iterable[str], most: int = 3) -> list[str]:
    """Columns that may be meant by one that is not there, the likeliest first: the same name but for its spelling,
    then what other tools call it, then names that look alike."""
    if misfit.name is None:
        return []
    spellings: dict[str, list[str]] = {}
    for column in columns:
        spellings.setdefault(bare(column), []).append(column)
    wanted = [bare(misfit.name), *(bare(alias) for alias in ALIASES.get(misfit.key, ()))]
    alike = difflib.get_close_matches(wanted[0], spellings, n=most, cutoff=0.6)
    names = (name for candidate in (*wanted, *alike) for name in spellings.get(candidate, ()))
    return list(dict.fromkeys(names))[:most]


def refusal(
    reasons: Sequence[tuple[str, UnreadableError | None]], settings: Settings, where: str, every_file: bool
) -> ScorelakeError | None:
    """The error of a lake with these files, each with the reason why it cannot be counted; None if the lake fits.

    Unless every file must fit, files that differ from others are left to be quarantined when they are counted.
    """
    wrong = [(path, reason) for path, reason in reasons if reason is not None and not reason.is_excused()]
    readable = [reason for _, reason in reasons if reason is None or reason.misfits]
    shared: list[Misfit] = []  # what does not fit in any file, in the order of the first
    if readable and readable[0] is not None:
        common = set(readable[0].misfits).intersection(*(reason.misfits if reason else () for reason in readable))
        shared = [misfit for misfit in readable[0].misfits if misfit in common]
    if not shared:
        if not wrong or not every_file:
            return None
        return DataError(
            f"{len(wrong):,} of {len(reasons):,} files cannot be read:{listed(wrong)}",
            where=where,
            hint="fix or remove them, or leave them out with --allow-quarantine",
        )
    columns = list(dict.fromkeys(name for reason in readable if reason for name in reason.columns))
    others = [(path, reason) for path, reason in wrong if not reason.misfits or set(reason.misfits) - set(shared)]
    lines = [f"\n  {_suggested(misfit, columns)}" for misfit in shared]
    many = f" in all {len(readable):,} files" if len(readable) > 1 else ""
    kind = UsageError if any(misfit.name is not None for misfit in shared) else DataError
    return kind(
        f"required columns are missing or have the wrong type{many}:{''.join(lines)}"
        f"\n  there are: {', '.join(columns) or 'none'}"
        + (f"\n  and {len(others):,} files have faults of their own:{listed(others)}" if others else ""),
        where=where,
        hint=_hint(shared, columns, settings, where),
    )


def _toml(names: Sequence[str]) -> str:
    texts = [toml_text(name) for name in names]
    return texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"


def _hint(shared: Sequence[Misfit], columns: Sequence[str], settings: Settings, where: str) -> str:
    """The lines to add, with the closest columns filled in, each for one thing."""
    missing = [misfit for misfit in shared if misfit.name is not None]
    if not missing:
        return "convert the column, or map a different one; `scorelake init` infers the mapping"
    free, meant = [name for name in columns if name not in settings.used], dict[tuple[str, str | None], str]()
    for misfit in missing:
        near = [name for name in _closest(misfit, free) if name not in meant.values()]
        meant[misfit.key, misfit.name] = near[0] if near else "..."
    named = {
        key: [meant.get((key, part), part) for part in settings.columns.parts(key)]
        for key in dict.fromkeys(key for key, _ in meant if key in NAMING)
    }
    lines = ["[columns]", *(f"{key} = {_toml(names)}" for key, names in named.items())] if named else []
    others = {key: name for (key, _), name in meant.items() if key not in NAMING}
    for key, setting in (("carry", "[columns] carry"), ("protocol", "[protocol] columns")):
        lines += [f"{setting} = [{toml_text(others[key])}]"] if key in others else []
    flags = [f"--column {shlex.quote(f'{key}={name}')}" for key, names in named.items() for name in names]
    flags += [f"--by {shlex.quote(others['by'])}"] if "by" in others else []
    flags += [f"--measure NAME=KIND:{shlex.quote(others['measures'])}"] if "measures" in others else []
    flags += [f"--window {shlex.quote(others['window'])}=LENGTH"] if "window" in others else []
    instructions = ["say in the config", *(f"    {line}" for line in lines)] if lines else []
    instructions += [f"{'  or' if lines else 'say'} in the command: {' '.join(flags)}"] if flags else []
    return "\n".join(
        [*instructions, f"  `scorelake init {shlex.quote(where)}` infers all columns and writes a config"]
    )
