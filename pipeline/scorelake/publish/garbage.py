"""What nobody needs any more: old snapshots, and partial counts that none of the kept ones uses."""

from __future__ import annotations

import shutil
from datetime import datetime

from scorelake.publish.snapshot import Output


def collect_garbage(out: Output, keep: int) -> dict[str, list[str]]:
    """Remove all but the newest `keep` snapshots (never the current one) and the partials none of them uses.

    A partial younger than the published run may belong to a count that goes on, or that no run has used yet.
    """
    current = out.current()
    manifests = out.manifests()
    shown = current["run"]["run_id"] if current else None
    kept = [m for m in manifests[max(0, len(manifests) - keep) :] if m is not None]
    kept += [m for m in manifests if m["run"]["run_id"] == shown and m not in kept]
    used = {name for m in kept for name in m["partials"]}
    names = {m["run"]["run_id"] for m in kept}
    old = sorted(path for path in out.snapshots.glob("[!.]*") if path.name not in names)
    since = datetime.fromisoformat(current["run"]["started"]).timestamp() if current else 0.0
    unused = (path for path in out.partials.glob("[!.]*") if path.name not in used)
    stale = sorted(path for path in unused if path.stat().st_mtime < since)
    if out.mirror:
        out.mirror.sweep()
        out.mirror.remove([path.relative_to(out.root).as_posix() for path in [*old, *stale]])
    for path in [*old, *stale]:
        shutil.rmtree(path)
    return {"snapshots": [path.name for path in old], "partials": [path.name for path in stale]}
