"""How each kind of training stage is opened, by its objective."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from rlc.plan import Likelihood, PolicyGradient, PreferenceLoss, Table, Training
from rlc.runtime.stages.base import Setup, Stage
from rlc.runtime.stages.preference import open_preferences
from rlc.runtime.stages.sft import open_likelihood
from rlc.runtime.stages.train import open_policy_gradient

OPENERS: Table[Callable[[Setup, Training], Awaitable[Stage[Any]]]] = Table(
    {
        PolicyGradient: open_policy_gradient,
        Likelihood: open_likelihood,
        PreferenceLoss: open_preferences,
    }
)
