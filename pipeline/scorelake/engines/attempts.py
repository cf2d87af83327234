"""How often a piece of work is tried, and when an attempt is given up: what the driver of a cluster keeps in mind.

Nothing here knows the cluster. An attempt is handed over, begins, is heard of while it runs, and ends. It is lost if
its worker ends; it is silent if it has begun and has not been heard of for a while, or if others that were handed
over after it began long ago. Then the work is tried again. What is done twice does no harm: the first result counts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from scorelake.errors import ClusterError
from scorelake.text import escape_controls, plural

ATTEMPTS = 5
"""How often a piece of work is tried, whatever ends the attempts."""
LONGEST = 160
"""Letters of what a piece of work is called."""
MEMORY, CRASH = "Ray's memory monitor ended the worker", "the worker crashed or was killed"
NODE = "the node was lost"
"""Ways in which an attempt ends that have a name; others are told as they come."""


@dataclass(eq=False)
class Attempt:
    """One try of a piece of work."""

    work: Work
    ref: Any
    name: str
    order: int
    """As the so-manieth it was handed over: those before it begin before it."""
    heard: float
    """When it was last heard of; before it begins, when it was handed over."""
    said: str = ""
    """What it said last; nothing before it begins."""
    silent: bool = False


@dataclass(eq=False)
class Work:
    """One item, and what became of the attempts at it."""

    at: int
    called: str
    packed: bytes
    tried: int = 0
    alive: list[Attempt] = field(default_factory=list)
    ended: list[str] = field(default_factory=list)
    """Why attempts ended, one after another."""
    not_before: float = 0.0

    def wants(self, now: float) -> bool:
        """Nothing that may still finish it is under way, and it may be tried again."""
        return not self._hopes and self.tried < ATTEMPTS and now >= self.not_before

    @property
    def is_suspicious(self) -> bool:
        """Its worker ended or fell silent, and nobody knows why: the work itself may do that."""
        return any(why not in (MEMORY, NODE) for why in self.ended)

    @property
    def is_lost(self) -> bool:
        return not self._hopes and self.tried >= ATTEMPTS

    @property
    def _hopes(self) -> bool:
        return any(not attempt.silent for attempt in self.alive)


@dataclass
class Attempts:
    """All work of one map that is handed over and not done, in the order of its items."""

    silent_s: float
    """Seconds after which an attempt that is not heard of is silent."""
    rest_s: float
    """Seconds before another attempt after the memory was full; twice as long after every further one."""
    say: Callable[[str], None]
    works: dict[int, Work] = field(default_factory=dict)
    moved: float = 0.0
    """When an attempt last began or ended."""
    _order: int = 0
    _latest: int = 0
    """The last in order of all that have begun."""

    @property
    def alive(self) -> list[Attempt]:
        return [attempt for work in self.works.values() for attempt in work.alive]

    @property
    def is_still(self) -> bool:
        """Something was handed over, and nothing of it runs."""
        alive = self.alive
        return bool(alive) and not any(attempt.said and not attempt.silent for attempt in alive)

    def handed_over(self, work: Work, ref: Any, name: str, now: float) -> None:
        self._order += 1
        work.tried += 1
        work.alive.append(Attempt(work, ref, name, self._order, now))

    def done(self, attempt: Attempt, now: float) -> list[Attempt]:
        """An attempt finished its work; those that need not finish it any more."""
        self._ended(attempt, now)
        return self.works.pop(attempt.work.at).alive

    def lost(self, attempt: Attempt, why: str, now: float) -> None:
        """An attempt ended without a result."""
        self._ended(attempt, now)
        work = attempt.work
        if attempt.silent:  # it was given up before
            return
        work.ended.append(why)
        if why == MEMORY:
            work.not_before = now + self.rest_s * 2 ** (len(work.ended) - 1)
        if work.tried < ATTEMPTS:
            self.say(f"warning: {work.called}: {why}; attempt {work.tried + 1} of {ATTEMPTS}")

    def _ended(self, attempt: Attempt, now: float) -> None:
        attempt.work.alive.remove(attempt)
        self._latest, self.moved = max(self._latest, attempt.order), now

    def hear(self, told: Callable[[Attempt], str], now: float) -> list[Attempt]:
        """Note what running attempts say; those that have fallen silent just now."""
        for attempt in self.alive:
            said = told(attempt)
            if said and said != attempt.said:
                self.moved = self.moved if attempt.said else now
                self._latest = max(self._latest, attempt.order)
                attempt.said, attempt.heard, attempt.silent = said, now, False
        fallen = []
        for attempt in self.alive:
            first = attempt.work.tried == 1  # later attempts queue apart, and may be overtaken
            if not attempt.said and not (first and attempt.order < self._latest):
                attempt.heard = now
            elif now - attempt.heard > self.silent_s and not attempt.silent:
                attempt.silent = True
                fallen.append(attempt)
        return fallen

    def given_up(self, attempt: Attempt, where: str) -> None:
        """A silent attempt no longer counts; should it be heard of again, it does."""
        work, seconds = attempt.work, f"{self.silent_s:g} s"
        work.ended.append(f"{where} was silent for {seconds}")
        more = f"; attempt {work.tried + 1} of {ATTEMPTS} runs elsewhere" if work.tried < ATTEMPTS else ""
        self.say(f"warning: {work.called}: {where} has been silent for {seconds}{more}")


def called(task: Callable[..., Any], item: Any) -> str:
    """What a task does to an item, in words: the item says itself what it is."""
    items = list(item) if isinstance(item, (tuple, list)) else [item]
    text = ", ".join(str(each) for each in items[:3])
    short = text if len(text) <= LONGEST else f"{text[:LONGEST]}..."
    others = f" and {len(items) - 3:,} more" if len(items) > 3 else ""
    return f"{getattr(task, '__name__', type(task).__name__)}({escape_controls(short)}{others})"


def failure(work: Work) -> ClusterError:
    """What to say of work that was tried often enough."""
    reasons = "; ".join(f"{why} ({plural(often, 'time')})" for why, often in Counter(work.ended).items())
    return ClusterError(
        f"could not be finished in {ATTEMPTS} attempts: {reasons}", where=work.called, hint=_hint(work.ended)
    )


def _hint(ended: Iterable[str]) -> str:
    reasons = set(ended)
    if MEMORY in reasons:
        return (
            "give tasks more with [run] memory_gb, or less to do with [run] shard_mb and bucket_rows; then run again"
        )
    if CRASH in reasons:
        return "if the system ended it for want of memory, set [run] memory_gb; else see Ray's logs on the node"
    return "look at the nodes named here; then run again: what was counted is kept"
