"""Takes the pictures of the README: `python -m tools.pictures`, half a minute on two cores.

`recipes/quickstart.rl` is run on this machine. The terminal in the middle of the run becomes
``docs/_static/terminal.svg``; the page that `rlc report` writes, in a Chromium,
``docs/_static/report.png``.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from contextlib import chdir
from io import StringIO
from pathlib import Path
from typing import Any

from PIL import Image
from rich.console import Console

import rlc
import rlc.service.engine
from rlc.cli.live.frame import frame
from rlc.cli.live.observers import RunObserver
from rlc.report.run_page import run_html

ROOT = Path(__file__).parents[1]
OUT = ROOT / "docs" / "_static"
RECIPE = "recipes/quickstart.rl"
RUN = Path("runs/quickstart-20261127-101500")
COLUMNS, LINES = 96, 27
WIDTH, HEIGHT = 1180, 712  # of the report, in pixels
MIDDLE = 34  # the step after which the terminal is shown
COLOURS = 64  # of the report's picture: it has few, and is half as large
BROWSERS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
FONTS = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)  # from elsewhere; there are others


class Photographer(RunObserver):
    """Keeps the terminal as it is after one of the steps."""

    console = Console(record=True, width=COLUMNS, file=StringIO(), color_system="truecolor")

    def step(self, step: int, metrics: Mapping[str, Any]) -> None:
        super().step(step, metrics)
        if step == MIDDLE:
            for line in frame(self.state, COLUMNS, LINES, self.clock()):
                self.console.print(line)


def photograph(page: Path, picture: Path) -> None:
    """Write the upper part of a page as a picture of few colours."""
    browser = os.environ.get("RLC_BROWSER") or next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        sys.exit("there is no Chromium on the path, and RLC_BROWSER names none")
    flags = ("--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars")
    size = f"--window-size={WIDTH},{HEIGHT}"
    subprocess.run(
        [browser, *flags, size, f"--screenshot={picture}", page.as_uri()],
        check=True,
        capture_output=True,
    )
    with Image.open(picture) as image:
        image.convert("RGB").quantize(COLOURS).save(picture, optimize=True)


def main() -> None:
    """Run the recipe in a folder of its own, so that no path of this machine is in a picture."""
    terminal, report = OUT / "terminal.svg", OUT / "report.png"
    with tempfile.TemporaryDirectory() as folder, chdir(folder):
        Path("recipes").mkdir()
        shutil.copy(ROOT / RECIPE, RECIPE)
        recipe = rlc.load(RECIPE)
        observer = Photographer(recipe.plan(), RUN, time.monotonic)
        rlc.run(recipe, run_dir=RUN, observer=observer)
        svg = observer.console.export_svg(title=f"rlc run {RECIPE}")
        terminal.write_text(FONTS.sub("", svg), encoding="utf-8")
        page = Path("report.html").absolute()
        page.write_text(run_html(RUN), encoding="utf-8")
        photograph(page, report)
    for picture in (terminal, report):
        print(f"{picture}: {picture.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main()
