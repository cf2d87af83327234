"""Which files are results, and of which format: by content, never by name."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from scorelake.errors import DataError, LakeError, UsageError
from scorelake.ingest.contract import Format, Source, refuse
from scorelake.ingest.formats import FORMATS, GENERIC
from scorelake.ingest.reading import WRONG
from scorelake.ingest.sight import Sight, look

AUTO = "auto"
_DATA = (".json", ".jsonl", ".eval", ".csv", ".parquet", ".gz", ".zip")
"""Endings of files that somebody took for data: broken ones are told, others are just not ours."""
_NOTHING = {"pointer": ("is a git-LFS pointer, not a result", "git lfs pull"), "empty": ("is empty", None)}


@dataclass
class Found:
    """Sources to read, files that are refused, and files that are no results."""

    sources: list[tuple[Format, Source]] = field(default_factory=list)
    refused: list[DataError] = field(default_factory=list)
    ignored: list[str] = field(default_factory=list)


def known(name: str) -> Format | None:
    """The format of that name; None for auto."""
    if name == AUTO:
        return None
    if name not in FORMATS:
        raise UsageError(f"no format {name}", where="FORMAT", hint=f"one of auto, {', '.join(sorted(FORMATS))}")
    return FORMATS[name]


def find(places: Sequence[Path], only: Format | None, mapped: bool, lake: Path) -> Found:
    """Everything below the places that is a result. A named file must be one; in a folder, others are passed by."""
    out = Found()
    units: dict[tuple[str, Path], list[Path]] = {}
    for place in places:
        if not place.exists():
            raise LakeError(
                "no such file or folder", where=str(place), hint="give the files or folders of a tool's results"
            )
        named = place.is_file()
        for path in [place] if named else _walk(place, lake.resolve()):
            try:
                format_ = _format(path, only, named, mapped)
            except DataError as error:
                out.refused.append(error)
                continue
            if format_ is None:
                out.ignored.append(str(path))
            else:
                unit = path if named else format_.unit(path)
                units.setdefault((format_.name, unit), []).append(path)
    for (name, unit), files in units.items():
        beside = sorted({path for file in files for path in FORMATS[name].beside(file) if path.is_file()} - {*files})
        out.sources.append((FORMATS[name], Source(unit, tuple(dict.fromkeys(sorted(files))), tuple(beside))))
    return out


def _walk(folder: Path, lake: Path) -> Iterator[Path]:
    """Files in the order of their paths; not hidden ones, not behind links to folders, and not those of the lake."""
    for home, folders, names in os.walk(folder):
        if Path(home).resolve() == lake:
            folders.clear()
            continue
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        paths = [Path(home, name) for name in sorted(names) if not name.startswith(".")]
        yield from (path for path in paths if path.is_file())


def _format(path: Path, only: Format | None, named: bool, mapped: bool) -> Format | None:
    """The format of a file; None if it is no result. Raises for what is broken, or was named and is none."""
    meant = named or path.name.lower().endswith(_DATA)
    try:
        sight = look(path)
    except DataError:
        if meant:
            raise
        return None
    if sight.shape in _NOTHING:
        if meant:
            what, hint = _NOTHING[sight.shape]
            raise refuse(what, path, hint)
        return None
    if only is GENERIC or (only is None and mapped):
        return GENERIC if meant else None
    found = [format_ for format_ in ([only] if only else FORMATS.values()) if _is(format_, sight)]
    if len(found) > 1:
        names = ", ".join(format_.name for format_ in found)
        raise refuse(f"could be {names}", path, "name the format")
    if found:
        return found[0]
    if named or (meant and sight.broken):
        raise _unknown(sight, only)
    return None


def _is(format_: Format, sight: Sight) -> bool:
    """Whatever stands where an adapter expects something else: then it is none of its files."""
    try:
        return format_.detect(sight)
    except WRONG:
        return False


def _unknown(sight: Sight, only: Format | None) -> DataError:
    if sight.broken:
        return refuse("broken JSON", sight.path, "the file is cut or was edited")
    for format_ in [only] if only else FORMATS.values():
        almost = format_.almost(sight)
        if almost:
            return refuse(almost, sight.path)
    what = f"is no {only.name} result" if only else "is of no known format"
    formats = ", ".join(sorted(FORMATS))
    return refuse(
        f"{what}; {sight.shape}, keys: {sight.keys}",
        sight.path,
        f"formats: {formats}; for any other table give --map",
    )
