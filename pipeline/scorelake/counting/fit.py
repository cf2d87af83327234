"""Does a lake fit its settings? All footers at once, and whose fault it is if not.

What no file has is a mistake of the settings, told once with the lines that mend it. What only some files lack is
those files' own, told file by file.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from functools import partial

from scorelake.counting.schema_check import Misfit, UnreadableError, closest, suggested
from scorelake.counting.shard import unfit
from scorelake.errors import DataError, ScorelakeError, UsageError
from scorelake.settings import NAMING, Settings
from scorelake.storage.files import Shard
from scorelake.text import toml_text
from scorelake.threads import parallel_map

_MOST = 10
_WRONG = "required columns are missing or have the wrong type"


def refusal(shard: Shard, settings: Settings, where: str, every_file: bool) -> ScorelakeError | None:
    """The error of a lake with these files that does not fit its settings; None if it does.

    Unless every file must fit, files that differ from others are left to be set aside when they are counted.
    """
    reasons = parallel_map(partial(unfit, shard, settings=settings), shard.files)
    readable = [reason for reason in reasons if reason is None or reason.misfits]
    shared = _shared(readable)
    wrong = [(f.path, reason) for f, reason in zip(shard.files, reasons, strict=True) if reason is not None]
    if shared:
        return _of_all(shared, readable, wrong, settings, where)
    if wrong and every_file:
        return DataError(
            f"{len(wrong):,} of {len(reasons):,} files cannot be read:{_listed(wrong)}",
            where=where,
            hint="fix or remove them, or leave them out with --allow-quarantine",
        )
    return None


def _shared(reasons: Sequence[UnreadableError | None]) -> list[Misfit]:
    """What does not fit in any file, in the order of the first."""
    if not reasons or reasons[0] is None:
        return []
    common = set(reasons[0].misfits).intersection(*(r.misfits if r else () for r in reasons))
    return [misfit for misfit in reasons[0].misfits if misfit in common]


def _of_all(
    shared: Sequence[Misfit],
    readable: Sequence[UnreadableError | None],
    wrong: Sequence[tuple[str, UnreadableError]],
    settings: Settings,
    where: str,
) -> ScorelakeError:
    columns = list(dict.fromkeys(name for reason in readable if reason for name in reason.columns))
    others = [
        (path, reason) for path, reason in wrong if not set(reason.misfits) <= set(shared) or not reason.misfits
    ]
    lines = [f"\n  {suggested(misfit, columns)}" for misfit in shared]
    many = f" in all {len(readable):,} files" if len(readable) > 1 else ""
    kind = UsageError if any(misfit.name is not None for misfit in shared) else DataError
    return kind(
        f"{_WRONG}{many}:{''.join(lines)}\n  there are: {', '.join(columns) or 'none'}"
        + (f"\n  and {len(others):,} files have faults of their own:{_listed(others)}" if others else ""),
        where=where,
        hint=_hint(shared, columns, settings, where),
    )


def _hint(shared: Sequence[Misfit], columns: Sequence[str], settings: Settings, where: str) -> str:
    """The lines to add, with the closest columns filled in, each for one thing."""
    missing = [misfit for misfit in shared if misfit.name is not None]
    if not missing:
        return "convert the column, or map a different one; `scorelake init` infers the mapping"
    free, meant = [name for name in columns if name not in settings.used], dict[str, str]()
    for misfit in missing:
        near = [name for name in closest(misfit, free) if name not in meant.values()]
        meant[misfit.key] = near[0] if near else "..."
    named = {key: name for key, name in meant.items() if key in NAMING}
    lines = ["[columns]", *(f"{key} = {toml_text(name)}" for key, name in named.items())] if named else []
    for key, setting in (("carry", "[columns] carry"), ("protocol", "[protocol] columns")):
        lines += [f"{setting} = [{toml_text(meant[key])}]"] if key in meant else []
    flags = [f"--column {shlex.quote(f'{key}={name}')}" for key, name in named.items()]
    flags += [f"--by {shlex.quote(meant['by'])}"] if "by" in meant else []
    instructions = ["say in the config", *(f"    {line}" for line in lines)] if lines else []
    instructions += [f"{'  or' if lines else 'say'} in the command: {' '.join(flags)}"] if flags else []
    return "\n".join(
        [*instructions, f"  `scorelake init {shlex.quote(where)}` infers all columns and writes a config"]
    )


def _listed(wrong: Sequence[tuple[str, UnreadableError]]) -> str:
    lines = [f"\n  {path}: {reason}" for path, reason in wrong[:_MOST]]
    more = len(wrong) - _MOST
    return "".join(lines) + (f"\n  ... and {more:,} more" if more > 0 else "")
