"""Stable hashes of texts and problems: if they changed, lakes would be recounted and intervals would move."""

from __future__ import annotations

from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np
import polars as pl
from numpy.typing import NDArray

Hashes: TypeAlias = NDArray[np.uint64]

MULTIPLIER, SEED_LOW, SEED_HIGH = 0xD6E8FEB86659FD93, 0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F
_BATCH_BYTES = 1 << 21
_SHORT, _TAG = 7, np.uint64(56)


def mix(values: Hashes) -> Hashes:
    """Mix the bits of every value (xorshift, multiply, xorshift)."""
    values = (values ^ (values >> np.uint64(32))) * np.uint64(MULTIPLIER)
    return values ^ (values >> np.uint64(32))


def pad_texts(texts: pl.Series) -> tuple[Hashes, Hashes]:
    """Return texts without nulls as rows of 64-bit words, padded with zeros, and their lengths in bytes."""
    size = texts.str.len_bytes().to_numpy().astype(np.int64)
    width = -(-int(size.max(initial=0)) // 8) * 8
    out = np.zeros((len(texts), width), np.uint8)
    array: Any = texts.rechunk().to_arrow(compat_level=pl.CompatLevel.oldest())
    content = array.buffers()[2]
    if content is not None and width:
        ends = np.frombuffer(array.buffers()[1], np.int64)[array.offset : array.offset + len(texts) + 1]
        characters = np.frombuffer(content, np.uint8)[ends[0] : ends[-1]]
        if size.min() == size.max():
            out[:, : size[0]] = characters.reshape(len(texts), size[0])
        else:
            out[np.arange(width) < size[:, None]] = characters
    return out.view(np.uint64).reshape(len(texts), width // 8), size.astype(np.uint64)


def hash_text(texts: pl.Series, seed: int = SEED_LOW) -> Hashes:
    """Return a 64-bit hash of every text, 0 for null."""
    out = np.empty(texts.len(), np.uint64)
    filled = texts.fill_null("")
    size = filled.str.len_bytes()
    batches: list[tuple[Any, pl.Series]]
    if texts.len() and size.min() == size.max():
        step = max(1, _BATCH_BYTES // (int(size[0]) + 8))
        batches = [(slice(low, low + step), filled.slice(low, step)) for low in range(0, texts.len(), step)]
    else:  # texts of similar length together: one long text must not pad all others
        order = size.arg_sort()
        ends = _batch_ends(size.gather(order).to_numpy())
        batches = [(order[low:high].to_numpy(), filled.gather(order[low:high])) for low, high in pairwise(ends)]
    for rows, batch in batches:
        words, sizes = pad_texts(batch)
        hashes = np.uint64(seed) ^ sizes
        for i in range(words.shape[1]):
            mixed = mix(hashes ^ words[:, i])
            hashes = mixed if sizes.min() > 8 * i else np.where(sizes > np.uint64(8 * i), mixed, hashes)
        out[rows] = mix(hashes)
    out[texts.is_null().to_numpy()] = 0
    return out


def _batch_ends(sizes: NDArray[Any]) -> list[int]:
    """Cut rising sizes into batches that fit into _BATCH_BYTES when padded, of one text at least."""
    ends = [0]
    while ends[-1] < sizes.size:
        low = ends[-1]
        high = min(sizes.size, low + _BATCH_BYTES // 8)
        while high - low > 1 and (high - low) * (int(sizes[high - 1]) + 8) > _BATCH_BYTES:
            high = low + (high - low) // 2
        ends.append(high)
    return ends


def subject_hashes(benchmark: Hashes, subject: Hashes) -> Hashes:
    """Combine the hashes of benchmarks and subjects."""
    return mix(mix(np.uint64(SEED_LOW) ^ benchmark) ^ subject)


def problem_hashes(owner: Hashes, name: Hashes) -> Hashes:
    """Combine the hash of what a problem belongs to (its subject or benchmark) and that of its name."""
    return mix(owner + name * np.uint64(SEED_LOW))


def text_ids(texts: pl.Series) -> Hashes:
    """Return 64 bits that tell texts apart, 0 for null.

    A whole number of up to 16 digits and a text of up to 7 bytes are kept as they are; of a longer text, 56 bits are
    a hash. Numbers come first, then texts by their length. The highest bit is 0.
    """
    size = texts.str.len_bytes().fill_null(0).to_numpy().astype(np.uint64)
    words, _ = pad_texts(texts.fill_null("").str.head(_SHORT))
    short = words[:, 0] if words.shape[1] else np.zeros(texts.len(), np.uint64)
    is_short = size <= np.uint64(_SHORT)
    ids = np.where(is_short, (size + np.uint64(2)) << _TAG | short, np.uint64(0))
    hashes = hash_text(texts.filter(pl.Series(~is_short))) >> np.uint64(8)
    ids[~is_short] = np.minimum(size[~is_short] + np.uint64(2), np.uint64(127)) << _TAG | hashes
    is_number = texts.str.contains(r"^(0|-?[1-9][0-9]{0,15})$").fill_null(value=False)
    numbers = texts.filter(is_number).cast(pl.Int64).to_numpy().view(np.uint64)
    ids[is_number.to_numpy()] = np.uint64(1) << _TAG | numbers & np.uint64((1 << 56) - 1)
    ids[texts.is_null().to_numpy()] = 0
    return ids
