"""Screenshots of the page for people to look at: `make page-shots`. They are not in git."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from counted import scored
from looked_at import LONG, browser, busy, heavy, hostile, measured, model, plain
from scorelake.page.build import build_page
from scorelake.pipeline import score_lake
from scorelake.publish.snapshot import Output
from scorelake.settings import load
from scorelake.synth import Plan, write

SIZES = {
    "wide": ("1440,2600",),
    "tablet": ("768,2600",),
    "phone": ("360,3600",),
    "dark": ("1440,2600", "--force-dark-mode"),
    "phone-dark": ("360,3600", "--force-dark-mode"),
}
QUIET = ("headless", "no-sandbox", "disable-gpu", "no-first-run", "disable-background-networking", "hide-scrollbars")
MATHS = "benchmark=maths&protocol=temperature%3D0.2"
VIEWS = {
    "busy": {
        "busy": "",
        "busy-maths": MATHS,
        "busy-pins": f"{MATHS}&pin=alone&pin=few",
        "busy-subject": f"{MATHS}&subject=7",
    },
    "300-models": {"300-models": "", "300-models-pin": "pin=lab-9/model-299", "300-models-makers": "group=1"},
}
"""Pages that are looked at in more than one state."""


def outputs(home: Path) -> dict[str, Path]:
    """Boards of several shapes, scored now."""
    out = {"plain": plain(home / "plain"), "hostile": hostile(home / "hostile"), "busy": busy(home / "busy")}
    out |= {"300-models": heavy(home / "heavy"), "measured": measured(home / "measured")}
    out["one-problem"] = scored(home / "one", [*model("solves-it", [4]), *model("does-not", [0])])
    out["long-names"] = scored(
        home / "long", [row for i in range(5) for row in model(f"{LONG}-{i}", [4 - i, 2, 1] * 9)]
    )
    for models, problems in ((1, 60), (3, 60), (12, 90), (12, 10_000)):
        name = f"{models}-models-{problems}-problems"
        write(home / name / "lake", Plan(models, problems, 8))
        score_lake(home / name / "lake", Output(home / name / "out"), load())
        out[name] = home / name / "out"
    return out


def main(folder: Path) -> None:
    chromium = browser()
    if chromium is None:
        sys.exit("no Chromium with its driver here: make system")
    folder.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory() as home:
        for name, out in outputs(Path(home)).items():
            page = folder / f"{name}.html"
            page.write_text(build_page(out), encoding="utf-8")
            for view, state in VIEWS.get(name, {name: ""}).items():
                for size, (window, *more) in SIZES.items():
                    flags = [*(f"--{flag}" for flag in QUIET), f"--user-data-dir={home}/profile", *more]
                    shot = folder / f"{view}-{size}.png"
                    address = f"{page.absolute().as_uri()}#{state}"
                    command = [chromium, *flags, f"--window-size={window}", f"--screenshot={shot}", address]
                    subprocess.run(command, check=True, capture_output=True, timeout=120)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
