"""Names as people type them."""

from pathlib import Path

import pytest

from counted import claims, scored
from scorelake.errors import UsageError
from scorelake.read.claim import PairRequest
from scorelake.read.format import canonical, check_names, matches_protocol
from scorelake.text import protocol_label


def test_metrics_have_one_name() -> None:
    names = {
        "PASS@8": "pass@8",
        "unanimous@2": "pass^2",
        "Spectrum@3": "spectrum@3",
        "Spectrum-Steep@2": "spectrum-steep@2",
    }
    assert {name: canonical(name, {"spectra": {"steep": [0.5, 0.5]}}) for name in names} == names


def test_the_three_closest_names_are_told() -> None:
    with pytest.raises(UsageError, match="no model gpt5 here") as raised:
        check_names("model", ["claude", "gpt-4", "GPT-5", "gpt-5-mini", "llama"], ("claude", "gpt5"))
    assert raised.value.hint == "did you mean: GPT-5, gpt-4, gpt-5-mini?"


def test_own_spectra_are_compared_on_demand(tmp_path: Path) -> None:
    counts = [{"model": m, "problem_id": p, "n": 4, "c": (p + i) % 5} for i, m in enumerate("ab") for p in range(30)]
    out = str(scored(tmp_path, counts, spectra={"steep": [0.25, 0.75]}, metrics={"names": ["pass@1"]}))
    (text,) = claims(out, PairRequest("a", "b", "Spectrum-Steep@2"))
    assert text.startswith("b against a (default, spectrum-steep@2): ")


def test_a_protocol_is_selected_by_any_of_its_values() -> None:
    protocol, label = '{"t": 0.2, "g": "x"}', "t=0.2, g=x"
    assert protocol_label(protocol) == label
    texts = (protocol, "t=0.2", "g=x", "g=x, t=0.2", "t=0.2, g=x", "t=0.3", "t")
    assert [text for text in texts if not matches_protocol(protocol, label, text)] == ["t=0.3", "t"]
