"""Every error a user can cause: what is wrong, where, and what to do next.

One base class, one subclass per exit code of the command line. Any other exception is a bug and shows a traceback.
"""

from __future__ import annotations

import signal
from collections.abc import Sequence
from functools import partial
from typing import Any


class ScorelakeError(Exception):
    """Base of every error caused by input, settings or surroundings."""

    exit_code = 1

    def __init__(self, what: str, *, where: str | None = None, hint: str | None = None) -> None:
        super().__init__(what, where, hint)
        self.what, self.where, self.hint = what, where, hint

    def __str__(self) -> str:
        where, what = (self.where or "").replace("\n", "\\n"), self.what.replace("\n  hint:", "\\n  hint:")
        text = f"{where}: {what}" if where else what  # a name cannot add a line of its own
        return f"{text}\n  hint: {self.hint}" if self.hint else text

    def __reduce__(self) -> tuple[Any, ...]:
        """Keep type and parts when an error is sent from a worker."""
        return partial(type(self), where=self.where, hint=self.hint), (self.what,)


def listed(entries: Sequence[tuple[str, object]], most: int = 10) -> str:
    """Return lines of a message, such as files with reasons; of many, the first."""
    lines = ["\n  " + f"{name}: {reason}".replace("\n", "\\n") for name, reason in entries[:most]]
    more = len(entries) - most
    return "".join(lines) + (f"\n  ... and {more:,} more" if more > 0 else "")


class StorageError(ScorelakeError):
    """The machine or its storage failed: disk full, no permission, out of memory, an unreachable store."""

    exit_code = 4


class UnreachableError(StorageError):
    """Object storage that does not answer."""


class UnsettledError(UnreachableError):
    """The store stopped responding during publication, so that its outcome is unknown."""


class ClusterError(ScorelakeError):
    """The cluster failed: no cluster, no node that is large enough, or workers that crash repeatedly."""

    exit_code = 4


class EndedError(StorageError):
    """A child process was ended by a signal, whose name is the last word of the message."""

    @property
    def number(self) -> int:
        return signal.Signals[self.what.rpartition(" ")[2]]


class UsageError(ScorelakeError):
    """A wrong argument, option or setting."""

    exit_code = 2


class MetricError(UsageError, ValueError):
    """An unknown metric, or counts or parameters for which a metric is not defined."""


class DataError(ScorelakeError):
    """The lake's rows or files were refused; nothing was published."""

    exit_code = 3


class LakeError(ScorelakeError):
    """The lake is missing or holds no Parquet file."""

    exit_code = 5


class LockedError(ScorelakeError):
    """Another run is writing to the same output."""

    exit_code = 6
