"""Names, aliases and the errors of bad input."""

import pytest

from scorelake import metrics
from scorelake.errors import MetricError, ScorelakeError


@pytest.mark.parametrize(
    ("given", "canonical"),
    [
        ("pass@8", "pass@8"),
        (" PASS@8 ", "pass@8"),
        ("Pass^8", "pass^8"),
        ("pass-hat@8", "pass^8"),
        ("pass_hat@8", "pass^8"),
        ("unanimous@8", "pass^8"),
        ("G-Pass@8", "pass^8"),
        ("G-Pass@8_0.50", "g-pass@8_0.5"),
        ("g_pass@8_{1}", "g-pass@8_1.0"),
        ("g-pass@10_0.30000000000000004", "g-pass@10_0.3"),
        ("mG-Pass@16", "mg-pass@16"),
        ("Maj@5", "maj@5"),
        ("AUC@4", "auc@4"),
        ("Geom@4", "geom@4"),
        ("geom-DS@4", "geom-ds@4"),
        ("GeoSpectrum@4", "geo-spectrum@4"),
        ("geo-spectrum@4_0.5", "geo-spectrum@4"),
        ("geo-spectrum@4_1.0", "geo-spectrum@4_1.0"),
        ("avg@N", "avg@N"),
        ("Bayes@n", "bayes@N"),
        ("max@3", "max@3"),
        ("Spectrum-Steep@4", "spectrum-steep@4"),
        ("geo-spectrum-steep@4_0.50", "geo-spectrum-steep@4"),
        ("geo-spectrum-steep@4_0.3", "geo-spectrum-steep@4_0.3"),
        ("geo-spectrum-star@4", "geo-spectrum@4"),
    ],
)
def test_names(given: str, canonical: str) -> None:
    spectra = {"steep": [0.1, 0.2, 0.3, 0.4]}
    assert metrics.parse(given, spectra).name == canonical
    assert metrics.parse(canonical, spectra).name == canonical


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("pas@8", "closest names are pass@k"),
        ("geospectrm@8", "geo-spectrum@k"),
        ("zzzz@8", "known: pass@k"),
        ("", "unknown metric ''"),
        ("pass@0", "pass@0: k must be a whole number >= 1, got '0'"),
        ("pass@-1", "got '-1'"),
        ("pass@2.5", "got '2.5'"),
        ("pass@", "got ''"),
        ("pass", "k must be"),
        ("pass@N", "got 'n'"),
        ("pass@8_0.5", "takes no parameter"),
        ("g-pass@8_1.5", "g-pass@8_1.5: tau must be a number in [0, 1], got '1.5'"),
        ("g-pass@8_nan", "tau must be a number"),
        ("g-pass@8_x", "tau must be a number"),
        ("geo-spectrum@8_-0.1", "lambda must be a number in [0, 1]"),
        ("avg@64", "always uses all attempts"),
        ("spectrum@4", "weights come from the config file"),
    ],
)
def test_bad_names(name: str, says: str) -> None:
    with pytest.raises(MetricError) as error:
        metrics.parse(name)
    assert says in str(error.value)


@pytest.mark.parametrize(
    ("n", "c", "says"),
    [
        (5, 6, "c must not exceed n, got n=5, c=6"),
        ([5, 7], [5, 9], "got n=7, c=9"),
        (-1, 0, "n must be whole numbers >= 0, got -1"),
        (5, -2, "c must be whole numbers >= 0, got -2"),
        (5.5, 2, "got 5.5"),
        (5, float("nan"), "got nan"),
        (float("inf"), 1, "got inf"),
        ("five", 1, "got"),
        ([5, 5, 5], [1, 2], "differ in shape"),
        (None, 1, "n must be whole numbers"),
    ],
)
def test_bad_counts(n: object, c: object, says: str) -> None:
    for call in (metrics.finite, metrics.posterior, metrics.summarize):
        with pytest.raises(MetricError) as error:
            call("pass@1", n, c)  # type: ignore[operator]
        assert says in str(error.value)


def test_bad_options() -> None:
    bad = [
        lambda: metrics.posterior("pass@1", 5, 3, (0, 1)),
        lambda: metrics.posterior("pass@1", 5, 3, (float("nan"), 1)),
        lambda: metrics.posterior("pass@1", 5, 3, (1.0,)),  # type: ignore[arg-type]
        lambda: metrics.summarize("pass@1", 5, 3, confidence=1.0),
        lambda: metrics.summarize("pass@1", 5, 3, min_coverage=2),
        lambda: metrics.summarize("pass@1", [5, 5], [3, 3], problems=[1, -1]),
        lambda: metrics.summarize("pass@1", [5, 5], [3, 3], problems=[1, 1, 1]),
        lambda: metrics.finite_levels("pass@1", [0, 1], [[1, 2]]),
        lambda: metrics.finite_levels("max@1", [0, float("nan")], [[1, 2]]),
        lambda: metrics.finite_levels("max@1", [0, 1], [[1, 2, 3]]),
        lambda: metrics.posterior_levels("bayes@N", [0, 1], [[1, 2]], [1, 2, 3]),
        lambda: metrics.posterior_levels("bayes@N", [0, 1], [[1, 2]], [[1, 2], [1, 2]]),
        lambda: metrics.spectrum([0.5, 0.6]),
        lambda: metrics.spectrum([-0.5, 0.6]),
        lambda: metrics.spectrum([]),
    ]
    for call in bad:
        with pytest.raises(MetricError):
            call()


def test_errors_are_ours_and_value_errors() -> None:
    assert issubclass(MetricError, ScorelakeError)
    assert issubclass(MetricError, ValueError)
    assert MetricError.exit_code == 2


def test_scalars_and_shapes() -> None:
    assert float(metrics.finite("pass@2", 5, 3)) == pytest.approx(0.9)
    assert metrics.finite("pass@2", [[5, 5]], [[3, 4]]).shape == (1, 2)
    assert metrics.finite("pass@2", [], []).shape == (0,)
    assert metrics.finite("pass@2", True, 1.0).shape == ()


def test_a_family_says_what_it_is() -> None:
    for family in metrics.families():
        assert family.name
        assert family.formula
        assert family.reference
        kinds = (family.credit, family.blend, family.rewards, family.vote)
        assert sum(kind is not None for kind in kinds) == 1
