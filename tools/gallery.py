"""Writes the gallery: jobs of the repository are run on this machine, and the page of each is kept.

    python -m tools.gallery OUT             all of them, some minutes on two cores
    python -m tools.gallery OUT quickstart  one; the others that are there stay

Nothing is downloaded or paid for: the included model learns, on the embedded engine.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import chdir
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

from attrs import frozen

if TYPE_CHECKING:
    from rlc.api import Setting

ROOT = Path(__file__).parents[1]


@frozen
class Shown:
    """A page of the gallery: what was run, and what to look at.

    Attributes:
        recipe: the recipe's name.
        title: what the job is.
        look: what its page shows best.
        settings: what is set for each run; of several the page shows them side by side.
        sweep: whether the sweep of the recipe is run.
    """

    recipe: str
    title: str
    look: str
    settings: tuple[Mapping[str, Setting], ...] = ({},)
    sweep: bool = False


SHOWN = {
    "quickstart": Shown(
        "quickstart",
        "Reinforcement learning: a game of several turns",
        "The reward rises while the entropy falls; in the episodes, guesses become a binary "
        "search, each token coloured by its advantage.",
    ),
    "preferences": Shown(
        "preferences",
        "Preferences: DPO on pairs of replies",
        "The accuracy on pairs that were held out, the margin beside it, and the expectation that "
        "the run had to meet.",
    ),
    "distillation": Shown(
        "distillation",
        "On-policy distillation: a teacher, then its student",
        "Two stages in one job: the student gets no reward, and what it learns is the distance to "
        "its teacher in each token.",
    ),
    "self_play": Shown(
        "self_play",
        "Self-play: a game with two seats",
        "The win rate against the model that it began as, and episodes with both seats.",
    ),
    "agent": Shown(
        "agent",
        "An agent: a program that calls tools",
        "Imitation first, then reward; the requests of an episode, and which of their tokens are "
        "trained.",
        settings=({"main.steps": 10},),  # of 30, which take longer than all other pages together
    ),
    "sweep": Shown(
        "learning_rates",
        "A sweep: learning rates and advantage schemes",
        "Which setting is better than the others by more than the seeds differ.",
        sweep=True,
    ),
    "side_by_side": Shown(
        "spell_backward",
        "Two runs side by side: what a learning rate does",
        "What differs between the plans, and the same curves of both in one chart.",
        settings=({"learning_rate": 1e-3}, {"learning_rate": 1e-4}),
    ),
}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.gallery", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("out", type=Path, help="the folder to write")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(SHOWN)}")
    args = parser.parse_args(arguments)
    if unknown := sorted({*args.names} - SHOWN.keys()):
        parser.error(f"no page is called {', '.join(unknown)}")
    args.out.mkdir(parents=True, exist_ok=True)
    for name in args.names or SHOWN:
        page = args.out / f"{name}.html"
        page.write_text(made(SHOWN[name]), encoding="utf-8")
        print(f"{page.stat().st_size:>10,}  {page}", flush=True)
    index = args.out / "index.html"
    index.write_text(index_html(args.out), encoding="utf-8")
    print(f"{index.stat().st_size:>10,}  {index}")
    return 0


def made(shown: Shown, extra: Mapping[str, Setting] | None = None) -> str:
    """Run a job, with what is set ``extra``, and return its page. Raise rlc.Error if it fails, or
    if something does not hold that its recipe expects."""
    from rlc.api import run, sweep
    from rlc.report.pages import page_html, shown_folders

    recipe = os.path.join("recipes", f"{shown.recipe}.rl")
    with tempfile.TemporaryDirectory() as folder, chdir(ROOT):
        roots = []
        for number, settings in enumerate(shown.settings, 1):
            several = f"-{number}" if len(shown.settings) > 1 else ""
            root = Path(folder) / f"{shown.recipe}{several}"
            start = sweep if shown.sweep else run
            start(recipe, run_dir=root, set={**settings, **(extra or {})})
            roots.append(root)
        page = page_html(shown_folders(roots))
    # The page is for others: it names no folder of this machine.
    return page.replace(f"{folder}{os.sep}", "runs/").replace(f"{ROOT}{os.sep}", "")


def index_html(folder: Path) -> str:
    """Return the page that leads to those that are in a folder."""
    there = {name: shown for name, shown in SHOWN.items() if (folder / f"{name}.html").is_file()}
    entries = "\n".join(
        f'<li><a href="{name}.html">{escape(shown.title)}</a>\n'
        f"<p>{escape(shown.look)}</p>\n"
        f"<p><code>{escape(command(shown))}</code></p></li>"
        for name, shown in there.items()
    )
    return _INDEX.format(entries=entries)


def command(shown: Shown) -> str:
    """Return how such a run is made by hand."""
    settings = "".join(f" --set {name}={value}" for name, value in shown.settings[0].items())
    verb = "sweep" if shown.sweep else "run"
    return f"rlc {verb} recipes/{shown.recipe}.rl{settings}"


_INDEX = """\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>rlc: reports of real runs</title>
<style>
:root {{ color-scheme: light dark; }}
body {{ max-width: 46em; margin: 0 auto; padding: 16px; font: 16px/1.5 system-ui, sans-serif; }}
li {{ margin: 0 0 20px; }}
li p {{ margin: 4px 0; }}
li a {{ font-weight: 600; }}
code {{ overflow-wrap: anywhere; }}
</style>
</head>
<body>
<h1>Reports of real runs</h1>
<p>Each of these pages is one file, as <code>rlc report</code> writes it. The included model of 0.8
million parameters learns, on the embedded engine: two cores do, without a key.</p>
<ul>
{entries}
</ul>
</body>
</html>
"""


if __name__ == "__main__":
    sys.exit(main())
