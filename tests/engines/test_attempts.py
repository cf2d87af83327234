"""When work is tried again and when it is given up, without any cluster."""

from __future__ import annotations

import pytest

from scorelake.engines.attempts import ATTEMPTS, CRASH, MEMORY, NODE, Attempt, Attempts, Work, called, failure


class Cluster:
    """Attempts at so many pieces of work, a clock, and what was said."""

    def __init__(self, many: int = 1, silent_s: float = 60.0) -> None:
        self.now, self.said = 0.0, list[str]()
        self.attempts = Attempts(silent_s, 1.0, self.said.append)
        self.attempts.works = {at: Work(at, f"task({at})", b"") for at in range(many)}
        self.beats: dict[str, int] = {}
        self.hand_over()

    def hand_over(self) -> list[Attempt]:
        """Whatever wants another attempt gets one."""
        before = set(self.attempts.alive)
        for work in self.attempts.works.values():
            if work.wants(self.now):
                self.attempts.handed_over(work, None, f"{work.at}.{work.tried}", self.now)
        return [attempt for attempt in self.attempts.alive if attempt not in before]

    def after(self, seconds: float, *beating: str) -> list[Attempt]:
        """Time passes, a second at a time, while these attempts say that they are alive; who falls silent."""
        fallen = []
        for _ in range(int(seconds)):
            self.now += 1
            for name in beating:
                self.beats[name] = self.beats.get(name, 0) + 1
            fallen += self.attempts.hear(self._told, self.now)
        return fallen

    def _told(self, attempt: Attempt) -> str:
        return str(self.beats.get(attempt.name, ""))

    def work(self, at: int = 0) -> Work:
        return self.attempts.works[at]


def test_lost_attempts_are_repeated_so_often_and_no_more() -> None:
    cluster = Cluster()
    for number in range(1, ATTEMPTS + 1):
        (attempt,) = cluster.attempts.alive
        cluster.attempts.lost(attempt, CRASH if number % 2 else NODE, cluster.now)
        assert cluster.work().is_lost == (number == ATTEMPTS)
        assert len(cluster.hand_over()) == (number < ATTEMPTS)
    assert ATTEMPTS == 5
    assert cluster.said == [
        f"warning: task(0): {why}; attempt {number} of 5"
        for number, why in ((2, CRASH), (3, NODE), (4, CRASH), (5, NODE))
    ]
    error = failure(cluster.work())
    assert (error.where, error.exit_code) == ("task(0)", 4)
    assert error.what == (f"could not be finished in 5 attempts: {CRASH} (3 times); {NODE} (2 times)")


def test_after_a_full_memory_there_is_a_pause_that_grows() -> None:
    cluster = Cluster()
    for pause in (1, 2, 4, 8):
        (attempt,) = cluster.attempts.alive
        cluster.attempts.lost(attempt, MEMORY, cluster.now)
        cluster.now += pause - 0.1
        assert not cluster.hand_over()
        cluster.now += 0.1
        assert cluster.hand_over()
    assert not cluster.work().is_suspicious
    assert "memory_gb" in str(failure(cluster.work()).hint)


def test_who_is_alive_is_never_given_up_however_long_it_takes() -> None:
    cluster = Cluster()
    assert cluster.after(10_000, "0.0") == []
    assert not cluster.hand_over()
    assert cluster.said == []


def test_a_silent_attempt_is_followed_by_another() -> None:
    cluster = Cluster()
    cluster.after(5, "0.0")
    assert cluster.after(60) == []
    (fallen,) = cluster.after(1)
    cluster.attempts.given_up(fallen, "worker 7 of node n")
    (second,) = cluster.hand_over()
    assert cluster.said == [
        "warning: task(0): worker 7 of node n has been silent for 60 s; attempt 2 of 5 runs elsewhere"
    ]
    assert cluster.after(200, second.name) == [], "it is said once"
    assert cluster.attempts.done(second, cluster.now) == [fallen], "the first result counts"
    assert not cluster.attempts.works


def test_a_silent_attempt_that_wakes_up_may_finish() -> None:
    cluster = Cluster()
    cluster.after(1, "0.0")
    (first,) = cluster.after(61)
    (second,) = cluster.hand_over()
    cluster.after(1, first.name, second.name)
    assert not first.silent
    cluster.attempts.lost(second, CRASH, cluster.now)
    assert not cluster.hand_over(), "the first goes on"
    assert cluster.attempts.done(first, cluster.now) == []


def test_silence_has_a_limit() -> None:
    cluster = Cluster()
    for number in range(ATTEMPTS):
        cluster.after(1, f"0.{number}")
        (fallen,) = cluster.after(61)
        cluster.attempts.given_up(fallen, f"worker {number}")
        assert cluster.work().is_lost == (number == ATTEMPTS - 1)
        cluster.hand_over()
    error = failure(cluster.work())
    assert "worker 0 was silent for 60 s (1 time); worker 1 was" in error.what
    assert "nodes" in str(error.hint)


def test_a_silent_worker_that_is_ended_is_no_second_loss() -> None:
    cluster = Cluster()
    cluster.after(1, "0.0")
    (first,) = cluster.after(61)
    cluster.attempts.given_up(first, "worker")
    (second,) = cluster.hand_over()
    cluster.attempts.lost(first, CRASH, cluster.now)
    assert cluster.work().ended == ["worker was silent for 60 s"]
    assert cluster.work().alive == [second]


@pytest.mark.parametrize(("why", "suspicious"), [(MEMORY, False), (NODE, False), (CRASH, True), ("SIGKILL", True)])
def test_work_may_itself_be_what_ends_its_worker(why: str, suspicious: bool) -> None:
    cluster = Cluster()
    assert not cluster.work().is_suspicious
    cluster.attempts.lost(cluster.work().alive[0], why, cluster.now)
    assert cluster.work().is_suspicious == suspicious


def test_who_waits_for_room_is_not_silent() -> None:
    """Nothing has begun, or only what was handed over before."""
    cluster = Cluster(3)
    assert cluster.after(1000) == []
    assert cluster.attempts.is_still
    assert cluster.after(1000, "0.0") == []
    assert not cluster.attempts.is_still


@pytest.mark.parametrize("finished", [False, True])
def test_who_was_overtaken_long_ago_is_silent(finished: bool) -> None:
    """Its worker took it and never began: it was stopped before."""
    cluster = Cluster(3)
    cluster.after(5, "1.0")
    if finished:
        cluster.attempts.done(cluster.work(1).alive[0], cluster.now)
    assert cluster.after(55, "1.0") == []
    (fallen,) = cluster.after(10, "1.0")
    assert (fallen.work.at, fallen.said) == (0, "")
    (second,) = cluster.hand_over()
    assert cluster.after(1000, "1.0", "2.0") == [], "later attempts wait in another queue"
    assert second.work.tried == 2


def test_when_something_last_began_or_ended() -> None:
    cluster = Cluster(2)
    cluster.after(3, "0.0")
    assert cluster.attempts.moved == 1
    cluster.after(3, "0.0", "1.0")
    assert cluster.attempts.moved == 4
    cluster.attempts.lost(cluster.work(1).alive[0], CRASH, cluster.now)
    assert cluster.attempts.moved == 6


def test_work_has_a_name() -> None:
    assert called(abs, -1) == "abs(-1)"
    assert called(max, ("a", "b")) == "max(a, b)"
    assert called(len, [f"x{i}" for i in range(1000)]) == "len(x0, x1, x2 and 997 more)"
    assert called(len, "\x1b[2J" + "y" * 1000).startswith("len(\\x1b[2Jyyy")
    assert len(called(len, "y" * 1000)) < 200
