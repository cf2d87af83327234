"""Conversion between numpy and Arrow, without loading pandas on the way from a lake to counts."""

import subprocess
import sys
from pathlib import Path
from uuid import UUID

import pyarrow as pa
import pytest

from conftest import REPO
from scorelake.storage.parquet import stored

COUNTED = """
import sys
from pathlib import Path
from scorelake import stages, tasks
from scorelake.engines import local
from scorelake.counting import partials
from scorelake.counting.merge import plan_buckets
from scorelake.publish.snapshot import Output
from scorelake.settings import Settings
settings, out, lake = Settings(), Path(sys.argv[1]), sys.argv[2]
(out / "partials").mkdir(parents=True)
for method in ("auto", "query"):
    for shard in stages.plan_lake(lake, Output.at(str(out), settings.storage), settings, True, local).shards:
        tasks.count(tasks.Count(shard, settings, str(out / "partials"), again=True, method=method))
    made = [partials.described(home) for home in sorted((out / "partials").iterdir())]
    for bucket in plan_buckets(out / "partials", made, out, "error", True):
        assert tasks.merge(tasks.Merge(bucket, settings))[0].problems
assert "pandas" not in sys.modules
"""


def test_uuids_are_texts() -> None:
    """Other columns stay what they are, also in a batch without rows."""
    for ids in ([UUID(int=7), None], []):
        uuids = pa.ExtensionArray.from_storage(
            pa.uuid(), pa.array([each and each.bytes for each in ids], pa.binary(16))
        )
        batch = stored(pa.RecordBatch.from_arrays([uuids, pa.array(ids and [1, 2], pa.int8())], ["id", "n"]))
        assert batch.column("id").equals(pa.array([each and str(each) for each in ids], pa.large_string()))
        assert batch.column("n").type == pa.int8()


@pytest.mark.slow
def test_counting_and_merging_load_no_pandas(tmp_path: Path) -> None:
    """It is installed here, and takes longer to load than millions of attempts to count."""
    command = [sys.executable, "-c", COUNTED, str(tmp_path / "out"), str(REPO / "fixtures" / "lake")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
