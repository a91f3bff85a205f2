"""A plan of one stage as a Python program: its values, and the calls of the pieces."""

from __future__ import annotations

import os
from collections.abc import Iterator

from rlc.emit.errors import EmitError
from rlc.emit.script.imitate import imitation_body
from rlc.emit.script.reinforce import reinforcement_body
from rlc.emit.script.stitch import stitched
from rlc.emit.script.unsupported import imitated, misfits
from rlc.plan import Plan, Training, located, plan_hash
from rlc.version import __version__

# What the code of a script itself may read; its pieces know their own.
IMPORTS = """
import argparse
import asyncio
from pathlib import Path
from typing import Any

import numpy as np
import tinker
import torch
from tinker_cookbook.renderers import get_renderer
"""


def script(plan: Plan, path: str = "train.py") -> str:
    """Return the program of a plan, as it would be saved at ``path``. Raise EmitError if a script
    cannot do what it says."""
    if found := misfits(plan):
        raise EmitError(found)
    (stage,) = plan.trainings
    head = "\n".join(_docstring(plan, stage, os.path.basename(path)))
    if (chats := imitated(stage)) is not None:
        data = os.path.relpath(located(chats.path, plan.recipe), os.path.dirname(path) or ".")
        return stitched(head, imitation_body(plan, stage, data), IMPORTS)
    return stitched(head, reinforcement_body(plan, stage, os.path.basename(path)), IMPORTS)


def _docstring(plan: Plan, stage: Training, name: str) -> Iterator[str]:
    objective = stage.policy_gradient
    recipe = os.path.basename(plan.recipe)
    yield f'"""{recipe}: {stage.name}, {stage.steps} steps on Tinker.'
    yield ""
    yield f"Written by rlc {__version__} (plan {plan_hash(plan)[:12]}). Comments name the place of"
    yield "the recipe that decided a value. Change the recipe and write the script again, or go"
    yield "on by hand."
    for expectation in plan.expectations:
        yield f"Expected, and so when this was written: {expectation.text}"
    yield ""
    yield f"    python {name} [--steps N] [--metrics metrics.jsonl]"
    yield ""
    own = objective is not None and objective.loss.program is not None
    packages = ["tinker", "tinker-cookbook"]
    packages += ["gem-llm"] if objective is not None else []
    packages += ["torch"] if own else []
    yield f"It needs {', '.join(packages)}; TINKER_API_KEY, and for a server of one's"
    yield "own TINKER_BASE_URL. The same seed gives what `rlc run` gives on that server."
    yield '"""'
