"""The batches of a shard's files, handed out to several threads, in any order.

Loading compiled code takes a tenth of a second of the interpreter (seconds, where it is compiled), which reading does
not need: batches are read ahead meanwhile, as many as there is room for.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Event
from typing import TypeAlias, TypeVar

import pyarrow as pa

from scorelake.counting.shape import Opened, batches
from scorelake.storage import parquet

Batch: TypeAlias = tuple[Opened, int, pa.RecordBatch]
"""A file, the number of a row in it, and the rows from there on."""
T = TypeVar("T")


class Source:
    """Every batch of the files once, to whoever asks next."""

    def __init__(self, files: Sequence[Opened]) -> None:
        self._units = deque(
            (opened, batches(opened, part)) for opened in files for part in parquet.units(opened.told)
        )
        self._ahead: deque[Batch] = deque()
        self.rows = sum(opened.rows for opened in files)
        """By their footers."""

    @property
    def empty(self) -> bool:
        return not (self._units or self._ahead)

    def next(self) -> Batch | None:
        """The next batch; None if there is none for this thread any more."""
        try:
            return self._ahead.popleft()
        except IndexError:
            return self._read()

    def _read(self) -> Batch | None:
        while True:
            try:
                opened, rest = self._units.popleft()
            except IndexError:
                return None
            for at, batch in rest:
                self._units.appendleft((opened, rest))
                return opened, at, batch

    def stop(self) -> None:
        """Hand out nothing more."""
        self._units.clear()
        self._ahead.clear()

    def meanwhile(self, work: Callable[[], T], threads: int, most: int) -> T:
        """Read ahead, up to so many bytes, while something else is done."""
        done = Event()

        def ahead() -> None:
            while not done.is_set() and sum(batch.nbytes for _, _, batch in tuple(self._ahead)) < most:
                found = self._read()
                if found is None:
                    return
                self._ahead.append(found)

        with ThreadPoolExecutor(threads) as pool:
            reading = [pool.submit(ahead) for _ in range(threads)]
            try:
                return work()
            finally:
                done.set()
                for each in reading:
                    each.result()
