"""Garbage: what no kept run needs goes, and nothing else."""

from pathlib import Path

from conftest import nights, run
from scorelake.publish.garbage import collect_garbage
from scorelake.publish.snapshot import Output


def test_garbage(tmp_path: Path) -> None:
    out = Output(nights(tmp_path, 4))
    (tmp_path / "lake" / "0.parquet").unlink()
    run(tmp_path / "lake", out.root)
    shown = out.current()
    removed = collect_garbage(out, 1)
    assert len(removed.snapshots) == 4
    assert out.current() == shown
    assert [m["run"]["run_id"] for m in out.manifests()] == [shown["run"]["run_id"]]  # type: ignore[index]
    kept = {path.name for path in out.partials.iterdir()}
    assert kept == set(shown["partials"])  # type: ignore[index]
    assert removed.bytes > 0
    assert run(tmp_path / "lake", out.root).status == "unchanged"
