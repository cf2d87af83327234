"""Screenshots of the page for people to look at: `make page-shots`. They are not in git."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from looked_at import browser, hostile, plain
from scorelake.page.build import html
from scorelake.publish.snapshot import Output
from scorelake.run import job
from scorelake.settings import load
from scorelake.synth import Plan, write

SIZES = {
    "wide": ("1440,2600",),
    "tablet": ("768,2600",),
    "phone": ("360,3600",),
    "dark": ("1440,2600", "--force-dark-mode"),
}
QUIET = ("headless", "no-sandbox", "disable-gpu", "no-first-run", "disable-background-networking", "hide-scrollbars")


def outputs(home: Path) -> dict[str, Path]:
    """Boards of several shapes, scored now."""
    out = {"plain": plain(home / "plain"), "hostile": hostile(home / "hostile")}
    for models, problems in ((1, 60), (12, 90), (60, 200)):
        name = f"{models}-models"
        write(home / name / "lake", Plan(models, problems, 8))
        job(home / name / "lake", Output(home / name / "out"), load())
        out[name] = home / name / "out"
    return out


def main(folder: Path) -> None:
    chromium = browser()
    if chromium is None:
        sys.exit("no Chromium with its driver here: make browser")
    folder.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory() as home:
        for name, out in outputs(Path(home)).items():
            page = folder / f"{name}.html"
            page.write_text(html(out), encoding="utf-8")
            for size, (window, *more) in SIZES.items():
                flags = [
                    *(f"--{flag}" for flag in QUIET),
                    f"--user-data-dir={home}/profile",
                    f"--window-size={window}",
                    *more,
                ]
                shot = folder / f"{name}-{size}.png"
                command = [chromium, *flags, f"--screenshot={shot}", page.absolute().as_uri()]
                subprocess.run(command, check=True, capture_output=True, timeout=120)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
