"""What a worker of the cluster runs. It is sent whole, not by its name: a worker without scorelake must say so."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

SPACE = "scorelake"
"""Where in the cluster's own small store running attempts say that they are alive."""
Told = tuple[str, Any]
"""done, failed, lost, unlike or blind; and what there is to say."""


def speaker(every: float) -> Callable[[str], Callable[[], None]]:
    """A function that begins to say under a name, every so many seconds, that this process is alive; it gives what to
    call in the end."""
    space = SPACE

    def alive(name: str) -> Callable[[], None]:
        import contextlib  # noqa: PLC0415
        import json  # noqa: PLC0415
        import os  # noqa: PLC0415
        import threading  # noqa: PLC0415

        import ray  # noqa: PLC0415
        from ray.experimental import internal_kv  # noqa: PLC0415

        context, over = ray.get_runtime_context(), threading.Event()
        me = [ray.util.get_node_ip_address(), context.get_node_id(), os.getpid()]

        def say(beat: int) -> None:
            with contextlib.suppress(Exception):  # who cannot be heard is silent; the work goes on
                internal_kv._internal_kv_put(name, json.dumps([*me, beat]), namespace=space)

        def go_on() -> None:
            beat = 1
            while not over.wait(every):
                say(beat)
                beat += 1
            with contextlib.suppress(Exception):
                internal_kv._internal_kv_del(name, namespace=space)

        say(0)  # before anything can happen to this process
        threading.Thread(target=go_on, daemon=True).start()
        return over.set

    return alive


def runner(shared: tuple[str, ...], wanted: dict[str, str], every: float) -> Callable[[bytes, bytes, str], Told]:
    """A function that does a task where lake and output are seen and versions are as wanted, and says all the while,
    every so many seconds, that it is alive."""
    alive = speaker(every)

    def run(task: bytes, item: bytes, name: str) -> Told:
        import importlib  # noqa: PLC0415
        import os  # noqa: PLC0415
        import pickle  # noqa: PLC0415

        import ray  # noqa: PLC0415

        found = {}
        for each in wanted:
            try:
                found[each] = importlib.import_module(each).__version__
            except ImportError:
                found[each] = None
        if found != wanted:
            return "unlike", (ray.util.get_node_ip_address(), found)
        for path in shared:
            if not os.path.exists(path):
                return "blind", (ray.util.get_node_ip_address(), path)
        errors = importlib.import_module("scorelake.errors")
        over = alive(name) if name else bool
        try:
            return "done", pickle.loads(task)(pickle.loads(item))
        except errors.EndedError as error:
            return "lost", str(error)
        except (errors.ScorelakeError, OSError) as error:
            return "failed", pickle.dumps(error)
        finally:
            over()

    return run


def end(process: int) -> None:
    """End a worker of this node that was silent: one that is stopped would keep its processor for ever."""
    with suppress(OSError):
        if Path(f"/proc/{process}/cmdline").read_bytes().startswith(b"ray::"):  # its number may be another's by now
            os.kill(process, signal.SIGKILL)
