"""Settings: defaults, TOML, flags, and errors that name the key."""

from pathlib import Path

import pytest

from scorelake.errors import UsageError
from scorelake.settings import Settings, load


def test_defaults_then_file_then_flags(tmp_path: Path) -> None:
    config = tmp_path / "s.toml"
    config.write_text('[metrics]\nnames = ["pass@1"]\n[columns]\nmodel = "m"\n')
    assert load().columns.model == "model"
    assert load(config).columns.model == "m"
    assert load(config).metrics.names == ("pass@1",)
    assert load(config, **{"metrics.names": ("pass@2",), "by": ()}).metrics.names == ("pass@2",)
    assert load(by=("g", "h", "g")).by == ("g", "h")
    assert load(**{"columns.cluster": ""}).columns.cluster is None
    with pytest.raises(UsageError, match="no such config file"):
        load(tmp_path / "none.toml")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[column]\nmodel = 'x'", "unknown key column"),
        ("[columns]\nmodle = 'x'", "unknown key columns.modle\n  hint: known keys: model, benchmark"),
        ("[run]\nsilent_s = 60.0", "unknown key run.silent_s\n  hint: known keys: memory_gb, shard_mb"),
        ("[policy]\nungraded = 'maybe'", "policy.ungraded"),
        ("[policy]\nmax_rejected = -1", "policy.max_rejected"),
        ("[uncertainty]\nconfidence = 2.0", "uncertainty.confidence"),
        ("[uncertainty]\nconfidence = 0.9999999999999999", "uncertainty.confidence"),
        ("[uncertainty]\nprior = [0.0, 1.0]", "pseudo-counts must be > 0"),
        ("[uncertainty]\nprior = 'flat'", "must be uniform, jeffreys, empirical or two pseudo-counts"),
        ("[uncertainty]\nbounds = [1, 0]", "the first must not exceed the second"),
        ("[rubric]\nlevels = [0, 1]\nweights = [1]", "2 levels but 1 weights"),
        ("[rubric]\nlevels = [0, 0]", "different numbers"),
        ("[compare]\nresamples = 100_000_000_000", "resamples"),
        ("[protocol]\ncolumns = ['t', 'x', 't']", "t is named twice"),
        ("[columns]\ncarry = ['model']", "model is a column of the output already"),
        ("[columns]\ncarry = ['N']", "N is a column of the output already"),
        ("[columns]\ncarry = ['Pass_At_K']", "Pass_At_K is a column of the output already"),
        ("[columns]\ncarry = ['level', 'Level']", "differ only in case"),
        ("by = ['C']", "s.toml: by: C is a column of the output already"),
        ("by = ['tier']\n[columns]\ncarry = ['Tier']", "Tier and tier differ only in case, which DuckDB does not"),
        ("[columns\n", "cannot be read"),
    ],
)
def test_bad_config(tmp_path: Path, text: str, message: str) -> None:
    config = tmp_path / "s.toml"
    config.write_text(text)
    with pytest.raises(UsageError) as error:
        load(config)
    assert message in str(error.value)
    assert "s.toml" in str(error.value)


def test_a_bad_slice_is_named_as_the_option() -> None:
    with pytest.raises(UsageError) as error:
        load(by=("n",))
    assert str(error.value) == "--by: n is a column of the output already"


def test_only_counting_settings_change_the_counts() -> None:
    base = load()
    assert base.counting() == load(**{"metrics.names": ("pass@3",), "uncertainty.confidence": 0.5}).counting()
    assert base.counting() != load(**{"policy.pass_threshold": 0.5}).counting()
    assert base.counting() != load(by=("difficulty",)).counting()
    assert base.scoring() != load(**{"metrics.names": ("pass@3",)}).scoring()


def test_shards_follow_the_memory_unless_their_size_is_given() -> None:
    small, large = (Settings.model_validate({"run": {"memory_gb": gb}}).run for gb in (1, 64))
    assert small.shard_size < large.shard_size
    assert load(**{"run.memory_gb": 2.0}).run.memory == 2.0
    assert Settings().run.memory > 0
    assert Settings.model_validate({"run": {"memory_gb": 1, "shard_mb": 3}}).run.shard_size == 3
    with pytest.raises(UsageError, match="memory_gb"):
        load(**{"run.memory_gb": 0.0})
