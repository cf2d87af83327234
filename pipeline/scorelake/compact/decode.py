"""Parquet pages -> codes of their values, compiled: no string is made, and no damaged page reaches outside its bytes.

A column's values become dense codes (vocabulary.py): a dictionary page is looked up once per entry and its data
pages are only indices, which is where the speed comes from; plain pages are looked up value by value. Everything is
read from one aligned buffer of 64-bit words, page after page, and every place is checked before it is read.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from scorelake.compact.compiler import compiled, load, store
from scorelake.compact.vocabulary import MISSING, SHORT, add, find, find_long, home, look, look_long, look_short

TYPE, START, STORED, SIZE, CHECKSUM, SUMMED, VALUES, ENCODING, NULLS, LEVELS, RAW = range(11)
"""What is kept of a page header: kind, where its bytes are and how many stored and unpacked, checksum and whether
there is one, values, encoding; in version 2 the nulls, the bytes of levels before the values, and whether the
values are stored as they are."""
DATA, DICTIONARY, DATA_V2 = 0, 2, 3
PLAIN, PLAIN_DICTIONARY, RLE, RLE_DICTIONARY = 0, 2, 3, 8
FINE, DAMAGED, UNKNOWN, NEWS = range(4)
"""How a page went; NEWS: it holds values that have no code yet."""
_DEEPEST = 8
_MOST = 1 << 40
_BATCH = 256
_ONE, _EACH = np.uint64(1), np.uint64(0x0101010101010101)


class News(NamedTuple):
    """Values that have no code yet: row, place and size of each, and how many, in an array of one."""

    values: NDArray[np.int64]
    many: NDArray[np.int64]


@compiled
def headers(data: Any, pages: Any) -> Any:
    """Every page header of a column chunk, one row each; the number of pages, or -1 for nonsense.

    Thrift's compact protocol: nested structs of numbered fields, of which only those above matter.
    """
    at, count, end = 0, 0, data.size
    field = np.zeros(_DEEPEST, dtype=np.int64)
    while at < end:
        if count == pages.shape[0]:
            return -2
        row = pages[count]
        row[:] = 0
        row[TYPE] = row[STORED] = row[SIZE] = -1
        depth = 0
        field[0] = 0
        while depth >= 0:
            if at >= end:
                return -1
            kind, step = data[at] & 15, data[at] >> 4
            at += 1
            if kind == 0:
                depth -= 1
                continue
            if step:
                field[depth] += step
            else:
                number, at = _number(data, at)
                if at < 0:
                    return -1
                field[depth] = number
            if kind in (1, 2):
                if depth == 1 and field[0] == 8 and field[1] == 7:
                    row[RAW] = kind == 2
            elif kind == 3:
                at += 1
            elif kind in (4, 5, 6):
                number, at = _number(data, at)
                if at < 0:
                    return -1
                _keep(row, depth, field, number)
            elif kind == 7:
                at += 8
            elif kind == 8:
                length, at = _varint(data, at)
                if at < 0 or length > end - at:
                    return -1
                at += length
            elif kind == 12:
                depth += 1
                if depth == _DEEPEST:
                    return -1
                field[depth] = 0
            else:
                return -1
        if row[STORED] < 0 or row[SIZE] < 0 or row[STORED] > end - at:
            return -1
        row[START] = at
        at += row[STORED]
        count += 1
    return count


@compiled
def _keep(row: Any, depth: Any, field: Any, number: Any) -> None:
    if depth == 0:
        if field[0] == 1:
            row[TYPE] = number
        elif field[0] == 2:
            row[SIZE] = number
        elif field[0] == 3:
            row[STORED] = number
        elif field[0] == 4:
            row[CHECKSUM], row[SUMMED] = number & 0xFFFFFFFF, 1
    elif depth == 1 and field[0] in (5, 7):
        if field[1] == 1:
            row[VALUES] = number
        elif field[1] == 2:
            row[ENCODING] = number
    elif depth == 1 and field[0] == 8:
        if field[1] == 1:
            row[VALUES] = number
        elif field[1] == 2:
            row[NULLS] = number
        elif field[1] == 4:
            row[ENCODING] = number
        elif field[1] in (5, 6):
            row[LEVELS] += number


@compiled
def _number(data: Any, at: Any) -> Any:
    number, at = _varint(data, at)
    return (number >> 1) ^ -(number & 1), at


@compiled
def _varint(data: Any, at: Any) -> Any:
    number, shift = np.int64(0), 0
    while at < data.size and shift < 56:
        byte = np.int64(data[at])
        number |= (byte & 127) << shift
        at += 1
        if byte < 128:
            return number, at
        shift += 7
    return np.int64(0), -1


# --- values ---------------------------------------------------------------------------------------------------


@compiled
def _bits(words: Any, at: Any, out: Any, low: Any, many: Any) -> None:
    """Single bits into bytes of 0 and 1: eight copies of a byte, of which each keeps another bit."""
    whole = many >> 3
    for i in range(whole):
        bits = (load(words, at + i) & np.uint64(255)) * _EACH & np.uint64(0x8040201008040201)
        store(out, low + 8 * i, (bits + np.uint64(0x7F7F7F7F7F7F7F7F)) >> np.uint64(7) & _EACH)
    for i in range(many & 7):
        out[low + 8 * whole + i] = load(words, at + whole) >> np.uint64(i) & _ONE


@compiled
def _packed(words: Any, at: Any, width: Any, entries: Any, out: Any, low: Any, many: Any) -> Any:
    """The entries whose numbers are bit-packed into out from `low` on; False if there is no such entry."""
    i, bit, mask, most = low, 8 * at, (_ONE << np.uint64(width)) - _ONE, np.uint64(entries.size)
    while width <= 8 and i + 8 <= low + many:  # eight of them begin at a byte and are in one word
        some = load(words, bit >> 3)
        for j in range(8):
            value = some >> np.uint64(j * width) & mask
            if value >= most:
                return False
            out[i + j] = entries[value]
        i += 8
        bit += 8 * width
    while i < low + many:
        value = load(words, bit >> 3) >> np.uint64(bit & 7) & mask
        if value >= most:
            return False
        out[i] = entries[value]
        i += 1
        bit += width
    return True


@compiled
def hybrid(words: Any, at: Any, end: Any, width: Any, entries: Any, out: Any, low: Any, high: Any) -> Any:
    """Runs of repeated or bit-packed small integers into out[low:high]; True if they are all there.

    Each is the number of one of the entries, which replaces it; without entries (None) they are single bits.
    """
    mask = (np.uint64(1) << np.uint64(width)) - np.uint64(1)
    while low < high:
        head, shift = np.int64(0), 0
        while True:
            if at >= end or shift > 56:
                return False
            byte = np.int64(load(words, at) & np.uint64(255))
            at += 1
            head |= (byte & 127) << shift
            if byte < 128:
                break
            shift += 7
        if head >> 1 > _MOST:
            return False
        if head & 1:
            size = (head >> 1) * width
            size = min(size, end - at)
            many = min(high - low, size * 8 // width if width else (head >> 1) * 8)
            if many == 0:
                return False
            if entries is None:
                _bits(words, at, out, low, many)
            elif not _packed(words, at, width, entries, out, low, many):
                return False
            at += size
        else:
            size = (width + 7) >> 3
            many = min(high - low, head >> 1)
            if size > end - at or many == 0:
                return False
            value = load(words, at) & mask
            if entries is None:
                out[low : low + many] = value
            else:
                if value >= np.uint64(entries.size):
                    return False
                out[low : low + many] = entries[value]
            at += size
        low += many
    return True


@compiled
def _levels(words: Any, page: Any, optional: Any, present: Any) -> Any:
    """Which rows of a data page have a value: where the values begin, how many there are (-1 for nonsense)."""
    at, rows = page[START], page[VALUES]
    end = at + page[SIZE]
    if not optional:
        return at + page[LEVELS], rows, end
    if page[TYPE] == DATA_V2:
        size = page[LEVELS]
    else:
        if page[SIZE] < 4:
            return at, -1, end
        size = np.int64(load(words, at) & np.uint64(0xFFFFFFFF))
        at += 4
    if size > end - at or size < 1:
        return at, -1, end
    first = load(words, at)
    if first & np.uint64(1) == 0:  # one run of "there is a value" is the common case
        head, shift, place = np.int64(0), 0, at
        while place < at + size and shift < 56:
            byte = np.int64(load(words, place) & np.uint64(255))
            head |= (byte & 127) << shift
            place += 1
            shift += 7
            if byte < 128:
                break
        if head >> 1 >= rows and place < at + size and load(words, place) & np.uint64(255) == np.uint64(1):
            return at + size, rows, end
    if not hybrid(words, at, at + size, 1, None, present, 0, rows):
        return at, -1, end
    some = 0
    for i in range(rows):
        some += present[i]
    return at + size, some, end


@compiled
def _spread(out: Any, low: Any, some: Any, rows: Any, present: Any, blank: Any) -> None:
    """Values that were read without the gaps, up to the last row, moved to their rows."""
    at = low + rows - some
    for i in range(rows):
        if present[i]:
            out[low + i] = out[at]
            at += 1
        else:
            out[low + i] = blank


@compiled
def _spread_bytes(out: Any, low: Any, some: Any, rows: Any, present: Any, blank: Any) -> None:
    """The same for bytes, eight at a time where there is no gap."""
    at, i = low + rows - some, 0
    while i < rows:
        if i + 8 <= rows and load(present, i) == _EACH:
            store(out, low + i, load(out, at))
            at += 8
            i += 8
            continue
        for j in range(i, min(i + 8, rows)):
            if present[j]:
                out[low + j] = out[at]
                at += 1
            else:
                out[low + j] = blank
        i += 8


@compiled
def codes(
    words: Any, pages: Any, at: Any, optional: Any, width: Any, remap: Any, present: Any, out: Any, low: Any,
    news: Any, table: Any, known: Any, grow: Any,
) -> Any:  # fmt: skip
    """The code of every row of the pages from `at` on into out from `low` on; 0 where there is no value.

    Returns how it went, and the page and row where it ended. A dictionary page fills remap, which the data pages
    after it use.
    Values of data pages that have no code yet are put down in `news`, to be learned afterwards, while it has room.
    """
    before = at
    while before > 0 and pages[before, TYPE] != DICTIONARY:
        before -= 1
    entries = remap[: pages[before, VALUES] if before < at and pages[before, TYPE] == DICTIONARY else 0]
    while at < pages.shape[0]:
        page = pages[at]
        if page[TYPE] == DICTIONARY:
            entries = remap[: page[VALUES]]
            end = page[START] + page[SIZE]
            none = News(news.values[:0], np.zeros(1, np.int64))  # data pages need every entry's code
            went, rows = _plain(words, page[START], end, width, table, known, grow, none, remap, 0, page[VALUES]), 0
        else:
            rows = page[VALUES]
            went = _codes(words, page, optional, width, entries, present, out, low, news, table, known, grow)
        if went != FINE:
            return went, at, low
        at += 1
        low += rows
    return FINE, at, low


@compiled
def _codes(
    words: Any, page: Any, optional: Any, width: Any, remap: Any, present: Any, out: Any, low: Any,
    news: Any, table: Any, known: Any, grow: Any,
) -> Any:  # fmt: skip
    """The same for one data page."""
    rows = page[VALUES]
    at, some, end = _levels(words, page, optional, present)
    if some < 0:
        return DAMAGED
    went = UNKNOWN
    if page[ENCODING] in (RLE_DICTIONARY, PLAIN_DICTIONARY):
        went = _looked_up(words, at, end, 32, remap, out, low + rows - some, some)
    elif page[ENCODING] == PLAIN:
        room = news if some == rows else News(news.values[:0], np.zeros(1, np.int64))  # else codes move below
        went = _plain(words, at, end, width, table, known, grow, room, out, low + rows - some, some)
    if went == FINE and some < rows:
        _spread(out, low, some, rows, present, 0)
    return went


@compiled
def _looked_up(words: Any, at: Any, end: Any, most: Any, entries: Any, out: Any, low: Any, many: Any) -> Any:
    """Indices of at most so many bits, each replaced by its entry of the dictionary."""
    if many == 0:
        return FINE
    if at >= end:
        return DAMAGED
    bits = np.int64(load(words, at) & np.uint64(255))
    if bits > most:
        return UNKNOWN
    return FINE if hybrid(words, at + 1, end, bits, entries, out, low, low + many) else DAMAGED


@compiled
def _plain(
    words: Any, at: Any, end: Any, width: Any, table: Any, known: Any, grow: Any, news: Any, out: Any, low: Any,
    many: Any,
) -> Any:  # fmt: skip
    """Values one after another, each of `width` bytes, or with its length before it if that is 0.

    In short loops over a batch (where and what, which slot), so that the processor waits for many places in memory
    at once and not for one after another. What takes a loop of its own, long values and new ones, is looked at only
    if there is any: inside these loops it would make them several times slower.
    """
    slots, text, filled = table
    mask, half, low_half, told = np.uint64(slots.shape[0] - 1), np.uint64(32), np.uint64(0xFFFFFFFF), news.many[0]
    place, sizes = np.empty(_BATCH, np.int64), np.empty(_BATCH, np.int64)
    firsts, seconds = np.empty(_BATCH, np.uint64), np.empty(_BATCH, np.uint64)
    hashes, ahead = np.empty(_BATCH, np.uint64), np.empty(_BATCH, np.uint64)
    for start in range(low, low + many, _BATCH):
        batch, long, missing = min(_BATCH, low + many - start), False, False
        for i in range(batch):
            size = width
            if width == 0:
                if end - at < 4:
                    return DAMAGED
                size = np.int64(load(words, at) & low_half)
                at += 4
            if size > end - at:
                return DAMAGED
            place[i], sizes[i] = at, size
            firsts[i], seconds[i], hashes[i] = look_short(words, at, size)
            long |= size > SHORT
            at += size
        if long:
            look_long(words, place[:batch], sizes, firsts, seconds, hashes)
        for i in range(batch):
            ahead[i] = slots[home(hashes[i], slots), 2]
        trusted = np.uint64(filled[0] if grow else known)
        if long:
            find_long(slots, text, words, place[:batch], sizes, firsts, hashes, trusted, out[start:])
        for i in range(batch):
            if sizes[i] > SHORT:
                missing |= out[start + i] == MISSING
                continue
            code, slot, held, size = MISSING, home(hashes[i], slots), ahead[i], np.uint64(sizes[i])
            while held:
                if slots[slot, 0] == firsts[i] and slots[slot, 1] == seconds[i] and held & low_half == size:
                    if held >> half < trusted:
                        code = np.uint32(held >> half)
                    break
                slot = (slot + _ONE) & mask
                held = slots[slot, 2]
            out[start + i] = code
            missing |= code == MISSING
        if missing:
            for i in range(batch):
                if out[start + i] == MISSING:
                    seen = firsts[i], seconds[i], hashes[i]
                    code = find(slots, text, words, place[i], sizes[i], *seen, trusted)
                    if code == MISSING and grow:
                        code = add(slots, text, filled, words, place[i], sizes[i], *seen)
                        trusted = np.uint64(filled[0])
                    out[start + i] = code
                    if code == MISSING:
                        if told == news.values.shape[0]:
                            return NEWS
                        news.values[told, 0], news.values[told, 1], news.values[told, 2] = (
                            start + i,
                            place[i],
                            sizes[i],
                        )
                        told += 1
    news.many[0] = told
    return FINE


@compiled
def learn(words: Any, news: Any, table: Any, out: Any) -> None:
    """Codes for the values that had none; there must be room for them."""
    slots, text, filled = table
    for i in range(news.many[0]):
        place, size = news.values[i, 1], news.values[i, 2]
        first, second, hashed = look(words, place, size)
        code = find(slots, text, words, place, size, first, second, hashed, np.uint64(filled[0]))
        if code == MISSING:
            code = add(slots, text, filled, words, place, size, first, second, hashed)
        out[news.values[i, 0]] = code


@compiled
def numbers(words: Any, pages: Any, optional: Any, width: Any, values: Any, present: Any, out: Any) -> Any:
    """Integers from 0 to 255, of pages without nulls; `values` is room for those of a dictionary."""
    low, entries = 0, values[:0]
    for i in range(pages.shape[0]):
        page = pages[i]
        if page[TYPE] == DICTIONARY:
            entries = values[: page[VALUES]]
            went = _small(words, page[START], page[START] + page[SIZE], width, page[VALUES], entries, 0)
        else:
            at, some, end = _levels(words, page, optional, present)
            went = UNKNOWN
            if some != page[VALUES]:
                went = DAMAGED
            elif page[ENCODING] in (RLE_DICTIONARY, PLAIN_DICTIONARY):
                went = _looked_up(words, at, end, 8, entries, out, low, some)
            elif page[ENCODING] == PLAIN:
                went = _small(words, at, end, width, some, out, low)
            low += page[VALUES]
        if went != FINE:
            return went
    return FINE


@compiled
def _small(words: Any, at: Any, end: Any, width: Any, many: Any, out: Any, low: Any) -> Any:
    """Plain integers of 4 or 8 bytes that fit into one."""
    if many * width > end - at:
        return DAMAGED
    mask = np.uint64(0xFFFFFFFF) if width == 4 else np.uint64(0xFFFFFFFFFFFFFFFF)
    for i in range(many):
        value = load(words, at + i * width) & mask
        if value > np.uint64(255):
            return DAMAGED
        out[low + i] = value
    return FINE


@compiled
def verdicts(words: Any, pages: Any, optional: Any, blank: Any, present: Any, out: Any) -> Any:
    """Booleans: 0, 1, or `blank` where there is none."""
    low = 0
    for i in range(pages.shape[0]):
        page = pages[i]
        rows = page[VALUES]
        at, some, end = _levels(words, page, optional, present)
        if some < 0 or page[TYPE] == DICTIONARY:
            return DAMAGED
        if page[ENCODING] == PLAIN:
            if some > (end - at) * 8:
                return DAMAGED
            _bits(words, at, out, low + rows - some, some)
        elif page[ENCODING] == RLE:
            if some and (end - at < 4 or not hybrid(words, at + 4, end, 1, None, out, low + rows - some, low + rows)):
                return DAMAGED
        else:
            return UNKNOWN
        if some < rows:
            _spread_bytes(out, low, some, rows, present, blank)
        low += rows
    return FINE
