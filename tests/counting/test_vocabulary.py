"""Codes are exact: one text, one code, whatever the hashes do and however many threads ask."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Event, Thread
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest

from made import same_hash
from scorelake.counting import vocabulary
from scorelake.counting.vocabulary import Vocabulary, identify
from scorelake.counts import hashed


def array(texts: Sequence[str | None], kind: Any = None) -> pa.Array[Any]:
    return pa.array(texts, kind or pa.large_string())


def exact(known_texts: Vocabulary, texts: Sequence[str | None], codes: Any) -> None:
    """Every code stands for its text, null is 0, and there are no more codes than texts."""
    known = known_texts.texts(null=True).to_pylist()
    assert known[0] is None
    assert len(known) == len(set(known)) == known_texts.count + 1
    assert [known[code] for code in codes] == list(texts)


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string()])
def test_codes_stand_for_their_texts(kind: Any) -> None:
    texts = ["b", "a", None, "", "b", "", None, "é", "e\u0301", "a\0", "a", "\0", "x" * 7, "x" * 8, "x" * 9]
    vocabulary = Vocabulary()
    codes = vocabulary.codes(array(texts, kind))
    exact(vocabulary, texts, codes)
    assert codes.tolist()[:4] == [1, 2, 0, codes[5]], "in the order of arrival"
    assert vocabulary.codes(array(texts, kind)).tolist() == codes.tolist()
    assert vocabulary.codes(array([])).tolist() == []
    assert vocabulary.codes(array([None, None])).tolist() == [0, 0]


def test_a_null_is_none_whatever_lies_beneath_it() -> None:
    data = pa.py_buffer(b"abab")
    offsets = pa.py_buffer(np.array([0, 1, 2, 3, 4], np.int32))  # type: ignore[arg-type]
    valid = pa.py_buffer(bytes([0b1011]))
    texts = pa.StringArray.from_buffers(4, offsets, data, valid)
    assert texts.to_pylist() == ["a", "b", None, "b"]
    vocabulary = Vocabulary()
    codes = vocabulary.codes(texts)
    assert codes[2] == 0
    assert [vocabulary.texts(null=True).to_pylist()[code] for code in codes] == ["a", "b", None, "b"]
    assert [int(words[2]) for words in identify(texts)] == [0, 0]


def test_a_slice_of_an_array() -> None:
    whole = array([f"t{i}" if i % 7 else None for i in range(100)])
    vocabulary = Vocabulary()
    for start, length in ((0, 5), (13, 50), (99, 1), (50, 0)):
        part = whole.slice(start, length)
        texts = part.to_pylist()
        known = vocabulary.codes(part)
        assert [vocabulary.texts(null=True).to_pylist()[code] for code in known] == texts
        assert (identify(part)[1] == identify(array(texts))[1]).all()


def test_growth() -> None:
    """More texts than there was room for, and texts larger than all the room there was."""
    vocabulary, before = Vocabulary(), Vocabulary().bytes
    texts = [f"problem-{i}" for i in range(50_000)]
    first = vocabulary.codes(array(texts[:10]))
    exact(vocabulary, texts, vocabulary.codes(array(texts)))
    long = ["x" * 100_000, "y" * 1_000_000, "x" * 99_999 + "y", ""]
    codes = vocabulary.codes(array(long))
    exact(vocabulary, [*texts[:10], *long], [*first, *codes])
    assert vocabulary.codes(array(texts[:10])).tolist() == first.tolist(), "codes stay"
    assert vocabulary.bytes > before
    assert (vocabulary.hashes[vocabulary.codes(array(texts))] == hashed(pl.Series(texts))).all()


def test_texts_that_share_a_hash() -> None:
    """All 64 bits of it, so that only the bytes tell them apart."""
    vocabulary = Vocabulary()
    texts = same_hash(300, int(vocabulary.seed))
    exact(vocabulary, texts, vocabulary.codes(array(texts)))
    more = [*texts, *(f"t{i}" for i in range(2000)), *reversed(texts)]
    exact(vocabulary, more, vocabulary.codes(array(more)))


def test_nobody_can_choose_names_that_share_a_hash() -> None:
    """The seed is another one in every run; the hash that orders partials does not decide where to look."""
    assert Vocabulary().seed != Vocabulary().seed
    texts = same_hash(50)
    vocabulary = Vocabulary()
    codes = vocabulary.codes(array(texts))
    exact(vocabulary, texts, codes)
    assert len(set(vocabulary.hashes[codes].tolist())) == 1


@pytest.mark.parametrize("alike", [False, True], ids=["any", "one hash"])
def test_many_threads_at_once(alike: bool) -> None:
    """Threads that learn the same texts in different orders, while the tables grow, get the same codes."""
    for turn in range(5):
        vocabulary = Vocabulary()
        texts = [f"{'long ' * (i % 13)}{i}" for i in range(8000)]
        if alike:
            texts[::20] = same_hash(400, int(vocabulary.seed))

        def ask(seed: int, texts: list[str] = texts, vocabulary: Vocabulary = vocabulary) -> list[tuple[str, int]]:
            rng, out = np.random.default_rng(seed), []
            for _ in range(40):
                some = [texts[i] for i in rng.integers(0, len(texts), 400)]
                out += list(zip(some, vocabulary.codes(array(some)).tolist(), strict=True))
            return out

        with ThreadPoolExecutor(8) as pool:
            told = [pair for pairs in pool.map(ask, range(8 * turn, 8 * turn + 8)) for pair in pairs]
        assert len({text for text, _ in told}) == len(set(told)) == vocabulary.count, "one text, one code"
        exact(vocabulary, [text for text, _ in told], [code for _, code in told])


def test_bytes_that_are_no_utf8_raise() -> None:
    vocabulary = Vocabulary()
    vocabulary.codes(pa.array([b"fine", b"\xff\xfe"], pa.large_binary()))
    with pytest.raises(pa.ArrowInvalid, match=r"(?i)utf8"):
        vocabulary.texts()


def test_a_code_is_told_only_when_it_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """One thread is still learning a text when another finds it: everything by its code must be there by then."""
    learn, learnt, go = vocabulary._learn, Event(), Event()

    def slow(*known: Any) -> Any:
        done = learn(*known)
        learnt.set()
        assert go.wait(30)
        return done

    monkeypatch.setattr(vocabulary, "_learn", slow)
    texts, mine = pa.array(["a text"], pa.large_string()), Vocabulary()
    told: list[tuple[int, int]] = []
    first = Thread(target=mine.codes, args=(texts,))
    second = Thread(target=lambda: told.append((int(mine.codes(texts)[0]), mine.count)))
    first.start()
    assert learnt.wait(30)
    second.start()
    second.join(0.2)
    assert told == []
    go.set()
    for thread in (first, second):
        thread.join(30)
    assert told == [(1, 1)]
