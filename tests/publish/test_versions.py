"""Outputs that another version wrote: their runs can still be compared and published again."""

import json
from pathlib import Path

import pytest

import scorelake
from conftest import nights
from scorelake.errors import UsageError
from scorelake.publish.snapshot import Output


def change_settings(out: Path, run_id: str, **sections: dict[str, object]) -> None:
    """Store other settings in the manifest of a run."""
    path = out / "snapshots" / run_id / "manifest.json"
    manifest = json.loads(path.read_text())
    settings = json.loads(manifest["run"]["settings"])
    for section, keys in sections.items():
        settings[section] = settings.get(section, {}) | keys
    manifest["run"]["settings"] = json.dumps(settings)
    path.write_text(json.dumps(manifest))


def test_settings_that_were_removed_are_ignored(tmp_path: Path) -> None:
    out = nights(tmp_path, 2)
    first = Output(out).manifests()[0]["run"]["run_id"]
    change_settings(out, first, run={"silent_s": 3}, compare={"allow_different_n": True}, gone={"x": 1})
    with scorelake.open(out) as board:
        assert "run " + first in str(board.compare("m", "m", run=first))
    change_settings(out, first, uncertainty={"confidence": 7})
    with scorelake.open(out) as board, pytest.raises(UsageError, match="does not accept"):
        board.compare("m", "m", run=first)
