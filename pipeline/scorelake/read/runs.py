"""Every run that was ever published, for people: which one is shown, and which can be rolled back to."""

from __future__ import annotations

from scorelake.publish.current_run import all_runs, find_current_run
from scorelake.publish.snapshot import Output


def lines(out: Output) -> list[str]:
    """One line per run, the newest last."""
    if out.mirror is None:
        return _lines(out.require())
    with out.held() as here:
        return _lines(here)


def _lines(out: Output) -> list[str]:
    shown = find_current_run(out)
    kept = {manifest["run"]["run_id"] for manifest in out.manifests()}
    told = []
    for row in all_runs(out, shown).iter_rows(named=True):
        name = row["run_id"]
        state = "shown" if name == shown.run_id else "kept" if name in kept else "history only"
        told.append(
            f"{row['number']:>5}  {name}  {row['started']:%Y-%m-%d %H:%M}  {row['files']:>9,} files  "
            f"{row['rows_read']:>13,} rows  {row['models']:>5,} models  {state}"
        )
    return told
