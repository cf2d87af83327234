"""The wheel works outside the repository, views included."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from conftest import FIXTURES, REPO


@pytest.mark.slow
def test_the_wheel(out: Path, tmp_path: Path) -> None:
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(build, cwd=REPO, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "site")
    code = (
        f"import sys; sys.path.insert(0, {str(tmp_path / 'site')!r}); import scorelake, scorelake.cli; "
        f"assert scorelake.__file__.startswith({str(tmp_path)!r}); "
        f"sys.argv = ['scorelake', 'score', {str(FIXTURES / 'lake')!r}, '--out', 'out', '--metrics', 'pass@1']; "
        "scorelake.cli.main()"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert (out / "leaderboard.duckdb").exists()
    names = {path.name for path in (tmp_path / "site" / "scorelake" / "sql").iterdir()}
    assert names == {path.name for path in (REPO / "sql").glob("*.sql")}
