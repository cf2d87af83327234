"""Find the files with results and their formats: by content, never by name."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

from scorelake.errors import DataError, LakeError
from scorelake.ingest.contract import LogFormat, LogRun, refusal
from scorelake.ingest.formats import FORMATS, GENERIC
from scorelake.ingest.ingest_report import IngestReport
from scorelake.ingest.json_stream import probe
from scorelake.ingest.staging import MALFORMED
from scorelake.storage.disk import checksum
from scorelake.threads import parallel_map

DATA_SUFFIXES = (".json", ".jsonl", ".eval", ".csv", ".parquet", ".gz", ".zip", ".zst")
"""Files with these names are refused if they are broken; others are skipped."""
NOT_DATA = "no data file by its name"
VERDICTS = ("passed", "success", "is_correct", "correct", "resolved", "is_resolved", "reward", "score")
"""Keys of a table by which it looks like results, so that it is refused and not skipped."""
TABLES = ("lines", "list", "parquet", "text")
_PART = re.compile(r"path\[-(\d+)\]")
_NO_CONTENT = {"pointer": ("is a git-LFS pointer, not a result", "git lfs pull"), "empty": ("is empty", None)}


def discover(
    paths: Sequence[str], only: LogFormat | None, mapping: Mapping[str, str], lake: Path, report: IngestReport
) -> list[LogRun]:
    """Find all results below the paths. A file that was named must be one; in a folder, other files are skipped.

    Files of one document whose path has names (`problem_id=path[-2]`) are one source, the folder above these names.
    """
    has_values = any(theirs.split("[")[0] == "value" for theirs in mapping.values())
    suffixes = (*DATA_SUFFIXES, ".txt") if has_values else DATA_SUFFIXES
    depth = max((int(n) for theirs in mapping.values() for n in _PART.findall(theirs)), default=0)
    groups: dict[tuple[str, Path], list[Path]] = {}
    for root in map(Path, paths):
        if not root.exists():
            hint = "give the files or folders of a tool's results"
            raise LakeError("no such file or folder", where=str(root), hint=hint)
        is_named = root.is_file()
        for path in [root] if is_named else _walk(root, lake.resolve(), report):
            try:
                is_data = is_named or path.name.lower().endswith(suffixes)
                found = _detect(path, only, is_named, is_data, bool(mapping))
            except DataError as error:
                report.refused.append(error)
                continue
            if isinstance(found, str):
                report.ignored[str(path)] = found
            else:
                run = path if is_named else found.group(path)
                if depth:
                    above = (path if len(path.parts) > depth else path.absolute()).parents
                    run = above[min(depth, len(above)) - 1]
                groups.setdefault((found.name, run), []).append(path)
    if not groups and not report.refused:
        reasons = "".join(f"; {name}: {why}" for name, why in list(report.ignored.items())[:3] if why != NOT_DATA)
        hint = f"formats: {', '.join(sorted(FORMATS))}"
        raise refusal(f"no results in {len(report.ignored):,} files{reasons}", ", ".join(paths)[:200], hint)
    runs = parallel_map(partial(_to_run, depth=depth), groups.items())
    for path in (path for run in runs for path in run.companions):
        report.ignored.pop(str(path), None)
    return runs


def _to_run(item: tuple[tuple[str, Path], list[Path]], depth: int) -> LogRun:
    """Add the companions, and the checksums that name a run and its attempts.

    Where paths have names, these belong to the content: all documents of two runs may be equal.
    """
    (name, path), files = item
    companions = {path for file in files for path in FORMATS[name].companions(file) if path.is_file()}
    both = tuple(sorted({*files})), tuple(sorted(companions - {*files}))
    digest, tag = checksum(*both[0], *both[1]), checksum(*both[0])
    if depth:
        names = ["/".join(file.absolute().parts[-depth - 1 :]) for file in both[0]]
        digest = tag = hashlib.sha256(json.dumps([digest, names]).encode()).hexdigest()
    return LogRun(path, name, *both, digest, tag[:12])


def _walk(folder: Path, lake: Path, report: IngestReport) -> Iterator[Path]:
    """Yield files in the order of their paths, without the lake itself, and without hidden and linked folders.

    Hidden folders are read below one that was named, such as .deepeval.
    """
    with_hidden = folder.absolute().name.startswith(".")
    for parent, folders, names in os.walk(folder):
        if Path(parent).resolve() == lake:
            folders.clear()
            continue
        for name in sorted(folders):
            is_link = Path(parent, name).is_symlink()
            if is_link or (name.startswith(".") and not with_hidden):
                what = "a link to a folder" if is_link else "a hidden folder"
                report.ignored[str(Path(parent, name))] = f"{what}: name it to read it"
                folders.remove(name)
        folders.sort()
        yield from (path for name in sorted(names) if (path := Path(parent, name)).is_file())


def _detect(path: Path, only: LogFormat | None, is_named: bool, is_data: bool, is_mapped: bool) -> LogFormat | str:
    """Return the format of a file, or why it is not a result.

    Raises for broken files, for files that were named, and for tables of results in no known format.
    """
    try:
        seen = probe(path)
        if seen.shape in _NO_CONTENT:
            what, hint = _NO_CONTENT[seen.shape]
            raise refusal(what, path, hint)
    except DataError:
        if is_data:
            raise
        return NOT_DATA
    if only is GENERIC or (only is None and is_mapped):
        return GENERIC if is_data else NOT_DATA
    formats = [only] if only else list(FORMATS.values())
    matches = []
    for format_ in formats:
        with suppress(*MALFORMED):  # values of an unexpected type: not one of its own
            matches += [format_] * format_.detect(seen)
    if len(matches) > 1:
        raise refusal(f"could be {', '.join(format_.name for format_ in matches)}", path, "name the format")
    if matches:
        return matches[0]
    names = [f"{name:.40}" for name in seen.members or seen.first]
    keys = ", ".join([*names[:8], *["..."] * (len(names) > 8)]) or "none"
    what = f"{f'is not a {only.name} result' if only else 'has no known format'}; {seen.shape}, keys: {keys}"
    reason = next(filter(None, (format_.explain(seen) for format_ in formats)), None)
    is_table = only is None and seen.shape in TABLES and any(seen.has(key) for key in VERDICTS)
    if is_named or (is_data and is_table):
        hint = f"formats: {', '.join(sorted(FORMATS))}; for any other table give --map"
        raise refusal(reason or what, path, None if reason else hint)
    return (reason or what) if is_data else NOT_DATA
