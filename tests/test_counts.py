"""Counts add up: in any order, without losing a row, and two problems are never taken for one."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest

from made import counts, said, same_hash
from scorelake import counts as module
from scorelake.counting.tally import hash_of
from scorelake.counting.vocabulary import Vocabulary, identify
from scorelake.counts import (
    DOUBT,
    HASH,
    OUTCOMES,
    PROBLEM,
    SEED_HIGH,
    TOLD,
    Counts,
    Words,
    add,
    added,
    attempt_name,
    bits,
    hashed,
    identities,
    problem_hashes,
    repeated,
)
from scorelake.schemas import KEYS


def one_hash(keys: list[Any]) -> Words:
    return np.full(len(keys), 7, np.uint64)


def two_hashes(keys: list[Any]) -> Words:
    """The same hash for half of all problems, by a letter of the last key."""
    return np.array([int(key[-1][-1]) % 2 for key in keys], np.uint64)


def by_hand(parts: list[Counts]) -> dict[Any, dict[str, Any]]:
    """The sum of parts, row by row."""
    out: dict[Any, dict[str, Any]] = {}
    for part in parts:
        names = {key: part.texts[key].to_pylist() for key in KEYS}
        for row in part.problems.iter_rows(named=True):
            key = tuple(names[name][row[name]] for name in KEYS)
            mine = out.setdefault(key, {HASH: row[HASH], DOUBT: False, "min:tier": [], "max:tier": []})
            seen = [name for name in row if name.startswith("seen")]
            mine[DOUBT] |= row[DOUBT] or any(mine.get(name, 0) & (row[name] or 0) for name in seen)
            for name, value in row.items():
                if name in (*OUTCOMES, TOLD):
                    mine[name] = mine.get(name, 0) + value
                elif name.startswith(module.KINDS):
                    mine[name] = mine.get(name, 0) | (value or 0)
                elif name.endswith(":tier") and value is not None:
                    mine[name].append(value)
    for row in out.values():
        row["min:tier"] = min(row["min:tier"], default=-1)
        row["max:tier"] = max(row["max:tier"], default=-1)
    return out


@pytest.mark.parametrize("hashing", [module.problem_hashes, one_hash, two_hashes], ids=["real", "one", "two"])
@pytest.mark.parametrize("seed", range(5))
def test_addition(seed: int, hashing: Any) -> None:
    """Commutative, associative, and what a loop over the rows comes to; also where problems share a hash."""
    how = {} if hashing is module.problem_hashes else {"hashing": hashing}
    a, b, c = (counts(10 * seed + i, 20 * i + 1, details=i != 1, **how) for i in range(3))
    whole = said(add([a, b, c]))
    assert whole[0] == by_hand([a, b, c])
    assert said(add([c, a, b])) == said(add([b, a, c])) == whole
    assert said(add([add([a, b]), c])) == said(add([a, add([b, c])])) == whole
    assert said(add([add([a, c]), add([b])])) == whole
    assert add([a, b, c]).rows == a.rows + b.rows + c.rows
    assert sum(whole[1].values()) == sum(part.details.height for part in (a, b, c) if part.details is not None)
    hashes = add([a, b, c]).problems[HASH]
    assert hashes.is_sorted()


def test_parts_with_different_numbers_of_words() -> None:
    """A part that holds 64 attempts and one that holds 256: nobody has seen what is not there."""
    a, b = counts(1, 30, words=1), counts(2, 30, words=4)
    assert add([a, b]).words == 4
    want = by_hand([a, b])
    for name in bits(4):
        assert {key: row.get(name, 0) for key, row in want.items()} == {
            key: max(row[name], 0) for key, row in said(add([a, b]))[0].items()
        }


def test_two_problems_with_one_hash_stay_apart() -> None:
    """Their rows come in turns, so that equal problems are not neighbours by the hash alone."""
    texts: dict[str, Any] = {key: pa.array(["x"], pa.large_string()) for key in KEYS} | {
        KEYS[-1]: pa.array(["a", "b", "c"])
    }
    many = 9
    problems = pl.DataFrame(
        {
            HASH: np.full(many, 5, np.uint64),
            **{key: np.zeros(many, np.uint32) for key in KEYS[:-1]},
            KEYS[-1]: np.arange(many, dtype=np.uint32) % 3,
            **{name: np.ones(many, np.int64) for name in OUTCOMES},
            TOLD: np.zeros(many, np.int64),
            DOUBT: np.zeros(many, bool),
        }
    )
    details = pl.DataFrame({PROBLEM: np.arange(many, dtype=np.uint32), **dict.fromkeys(OUTCOMES, 1)})
    total, owner = added(Counts(texts, problems, details))
    assert total.problems.height == 3
    assert total.problems["passed"].to_list() == [3, 3, 3]
    assert owner.tolist() == [total.problems[KEYS[-1]].to_list().index(i % 3) for i in range(many)]
    assert sorted(said(total)[1].values()) == [3, 3, 3]


def test_attempts_seen_twice_are_in_doubt() -> None:
    def one(seen: int) -> Counts:
        texts: dict[str, Any] = {key: pa.array(["x"], pa.large_string()) for key in KEYS}
        row = {HASH: [5], **{key: [0] for key in KEYS}, "passed": [1], "failed": [0], "ungraded": [0], TOLD: [0]}
        kinds = {HASH: pl.UInt64} | dict.fromkeys(KEYS, pl.UInt32) | dict.fromkeys(bits(1), pl.UInt64)
        row |= {DOUBT: [False], "seen0": [seen], "graded0": [seen], "right0": [seen]}
        return Counts(texts, pl.DataFrame(row, schema_overrides=kinds))

    assert add([one(0b011), one(0b100)]).problems[DOUBT].to_list() == [False]
    assert add([one(0b011), one(0b110)]).problems[DOUBT].to_list() == [True]
    assert add([one(1 << 63), one(1 << 63)]).problems[DOUBT].to_list() == [True]
    assert add([add([one(1), one(1)]), one(2)]).problems[DOUBT].to_list() == [True], "doubt stays"
    assert add([one(0b011), one(0b100)]).problems["seen0"].to_list() == [0b111]


def test_a_lost_row_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_summed", lambda problems, starts: problems.gather(starts))
    with pytest.raises(AssertionError, match="addition lost rows"):
        add([counts(1, 40), counts(2, 40)])


def test_nothing_added_up() -> None:
    empty = counts(1, 0)
    assert add([empty]).rows == 0
    some = counts(2, 10)
    assert said(add([empty, some])) == said(add([some]))


# --- texts as numbers -----------------------------------------------------------------------------------------

TEXTS = [
    *("", " ", "\0", "\0\0", "a", "a\0", "é", "日本語", "🙂🙂🙂🙂", "\n", "e\u0301"),
    *("0", "-0", "00", "007", "7", "-7", "+7", "7.0", "1e3", " 7", "7 ", "٣", "-", "--1", "1-1", "12a"),
    *(str(10**i) for i in range(22)),
    *(str(-(10**i)) for i in range(22)),
    *(str(10**i - 1) for i in range(1, 21)),
    *("9223372036854775807", "9223372036854775808", "-9223372036854775808", "18446744073709551615"),
    *("x" * i for i in range(40)),
    *("é" * i for i in range(20)),
    *("1" * i for i in range(1, 40)),
    *("x" * i for i in (255, 256, 257, 300, 5000)),
    *("x" * (i - 1) + "y" for i in (15, 16, 17, 256, 257)),
]
rng = np.random.default_rng(4)
TEXTS += [rng.integers(0, 128, size, dtype=np.uint8).tobytes().decode() for size in rng.integers(0, 40, 500)]


def by_compiled_code(texts: list[str]) -> Words:
    """The hashes that the tally knows texts by."""
    vocabulary = Vocabulary()
    codes = vocabulary.codes(pa.array(texts, pa.large_string()))
    return vocabulary.hashes[codes]


@pytest.mark.parametrize("texts", [TEXTS, ["", ""], ["x" * 300], []], ids=["all", "empty", "long", "none"])
def test_numpy_and_compiled_code_agree(texts: list[str]) -> None:
    """A lake that is counted by the one and the other has one hash per problem, and one identity per attempt."""
    series = pl.Series(texts, dtype=pl.String)
    assert (hashed(series) == by_compiled_code(texts)).all()
    for kind in (pa.string(), pa.large_string()):
        high, low = identify(pa.array([*texts, None], kind))
        plain_high, plain_low = identities(pl.Series([*texts, None], dtype=pl.String))
        assert (high == plain_high).all()
        assert (low == plain_low).all()
        assert (high[-1], low[-1]) == (0, 0)


def test_hashes_are_what_they_were() -> None:
    """Partials are ordered by them: another value counts every lake again."""
    assert hashed(pl.Series(["", "a", "problem-17", "x" * 300])).tolist() == [
        1728126539969246250,
        15640185205862195512,
        302973427876975405,
        529746042670463872,
    ]
    assert hashed(pl.Series(["a"]), SEED_HIGH)[0] != hashed(pl.Series(["a"]))[0]


def test_problems_have_one_hash_by_numpy_and_compiled() -> None:
    group, name = (rng.integers(0, 1 << 63, 100).astype(np.uint64) for _ in range(2))
    numbers = np.arange(100, dtype=np.uint64)
    compiled = [hash_of(np.uint64(i << 30 | i), group, name) for i in range(100)]
    assert problem_hashes(group[numbers], name[numbers]).tolist() == compiled


def test_identities_tell_texts_apart() -> None:
    distinct = sorted(set(TEXTS))
    high, low = identities(pl.Series(distinct))
    assert len(set(zip(high.tolist(), low.tolist(), strict=True))) == len(distinct)
    assert (high > 0).all(), "0 is for null"
    same = same_hash(50)
    assert len(set(hashed(pl.Series(same)).tolist())) == 1
    high, low = identities(pl.Series(same))
    assert len(set(zip(high.tolist(), low.tolist(), strict=True))) == 50, "the second hash tells them apart"


@pytest.mark.parametrize("text", ["", "a", "é" * 7, "x" * 15, "0", "-5", "007", "999999999999999999", "-0", "7.0"])
def test_an_attempt_is_named_as_it_was_written(text: str) -> None:
    high, low = identities(pl.Series([text]))
    assert attempt_name(int(high[0]), int(low[0])) == text


def test_a_long_attempt_is_named_by_its_number() -> None:
    high, low = identities(pl.Series(["x" * 16]))
    assert attempt_name(int(high[0]), int(low[0])) == f"(a name of more than 15 bytes, number {int(low[0]):016x})"


# --- attempts that occur twice --------------------------------------------------------------------------------


def test_repeated_finds_every_row_of_a_repeated_attempt() -> None:
    random = np.random.default_rng(5)
    for _ in range(20):
        owner, high, low = (random.integers(0, most, 60).astype(np.uint64) for most in (4, 3, 6))
        keys = list(zip(owner.tolist(), high.tolist(), low.tolist(), strict=True))
        want = [i for i, key in enumerate(keys) if key[1] and keys.count(key) > 1]
        assert sorted(repeated(owner, high, low).tolist()) == want


def test_repeated_looks_at_all_bits() -> None:
    """Among so many attempts some agree in the 32 bits that are looked at first, and are still different."""
    many = 1 << 18
    low = np.random.default_rng(6).integers(0, 1 << 63, many).astype(np.uint64)
    high = np.full(many, 255 << 56, np.uint64)
    tags = module.mix(low ^ module.mix(high)) >> np.uint64(32)
    assert np.unique(tags).size < many, "no two of them agree"
    assert np.unique(low).size == many
    assert repeated(np.zeros(many, np.uint32), high, low).size == 0
    low[17] = low[99]
    assert sorted(repeated(np.zeros(many, np.uint32), high, low).tolist()) == [17, 99]


def test_no_attempt_is_never_repeated() -> None:
    none = np.zeros(5, np.uint64)
    assert repeated(np.zeros(5, np.uint32), none, none).size == 0
