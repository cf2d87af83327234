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
    ("text", "says"),
    [
        ("[column]\nmodel = 'x'", "unknown key column"),
        ("[columns]\nmodle = 'x'", "unknown key columns.modle"),
        ("[columns]\nmodle = 'x'", "known keys: model, benchmark"),
        ("[run]\nsilent_s = 60.0", "unknown key run.silent_s\n  hint: known keys: memory_gb, shard_mb"),
        ("[policy]\nungraded = 'maybe'", "policy.ungraded"),
        ("[policy]\nmax_rejected = -1", "policy.max_rejected"),
        ("[uncertainty]\nconfidence = 2.0", "uncertainty.confidence"),
        ("[uncertainty]\nprior = [0.0, 1.0]", "pseudo-counts must be > 0"),
        ("[rubric]\nlevels = [0, 1]\nweights = [1]", "2 levels but 1 weights"),
        ("[rubric]\nlevels = [0, 0]", "different numbers"),
        ("[columns]\ncarry = ['model']", "model is a column of the output already"),
        ("[columns\n", "cannot be read"),
    ],
)
def test_bad_config(tmp_path: Path, text: str, says: str) -> None:
    config = tmp_path / "s.toml"
    config.write_text(text)
    with pytest.raises(UsageError) as error:
        load(config)
    assert says in str(error.value)
    assert "s.toml" in str(error.value)


def test_only_counting_settings_change_the_counts() -> None:
    base = load()
    assert base.counting() == load(**{"metrics.names": ("pass@3",), "uncertainty.confidence": 0.5}).counting()
    assert base.counting() != load(**{"policy.pass_threshold": 0.5}).counting()
    assert base.counting() != load(by=("difficulty",)).counting()
    assert base.scoring() != load(**{"metrics.names": ("pass@3",)}).scoring()


@pytest.mark.parametrize(
    ("tree", "says"),
    [
        ({"uncertainty": {"confidence": 0.9999999999999999}}, "confidence"),
        ({"compare": {"resamples": 10**11}}, "resamples"),
        ({"protocol": {"columns": ["t", "x", "t"]}}, "t is named twice"),
        ({"columns": {"carry": ["N"]}}, "N is a column of the output already"),
        ({"columns": {"carry": ["Pass_At_K"]}}, "Pass_At_K is a column of the output already"),
        ({"columns": {"carry": ["level", "Level"]}}, "differ only in case"),
        ({"by": ["C"]}, "C is a column of the output already"),
        ({"by": ["tier"], "columns": {"carry": ["Tier"]}}, "differ only in case"),
    ],
)
def test_what_cannot_work_is_said_at_once(tree: dict[str, object], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        Settings.model_validate(tree)


@pytest.mark.parametrize(
    ("text", "by", "says"),
    [
        ("[policy]\nmax_rejected = 1\n", ("n",), "--by: n is a column of the output already"),
        ('by = ["n"]\n', (), "{}: by: n is a column of the output already"),
        ('[columns]\ncarry = ["G"]', ("g",), "{}: G and g differ only in case, which DuckDB does not tell apart"),
    ],
)
def test_a_slice_that_takes_a_column_of_ours(tmp_path: Path, text: str, by: tuple[str, ...], says: str) -> None:
    file = tmp_path / "s.toml"
    file.write_text(text)
    with pytest.raises(UsageError) as error:
        load(file, by=by)
    assert str(error.value) == says.format(file)


def test_shards_follow_the_memory_unless_their_size_is_given() -> None:
    small, large = (Settings.model_validate({"run": {"memory_gb": gb}}).run for gb in (1, 64))
    assert small.shard_size < large.shard_size
    assert load(**{"run.memory_gb": 2.0}).run.memory == 2.0
    assert Settings().run.memory > 0
    assert Settings.model_validate({"run": {"memory_gb": 1, "shard_mb": 3}}).run.shard_size == 3
    with pytest.raises(UsageError, match="memory_gb"):
        load(**{"run.memory_gb": 0.0})
