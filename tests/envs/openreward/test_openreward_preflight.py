"""What is wrong with an OpenReward environment is found before a token is paid for."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import pytest
from openreward_servers import KEY, base_url

from rlc.catalog.builtins.sources import AS_THEY_COME
from rlc.envs.openreward import openreward_problems
from rlc.plan.environments import EnvPlan, RolloutsPlan

pytestmark = pytest.mark.server

ARGS: dict[str, Any] = {
    "split": "train",
    "shuffle": True,
    "samples": None,
    "variant": None,
    "secrets": [],
    "tools": [],
    "sessions": 8,
}
ROLLOUTS = RolloutsPlan(2, 1.0, 4, None, None)


def env(name: str = "Shop", source: str = "openreward", **args: Any) -> EnvPlan:
    own = {**ARGS, "base_url": base_url(), **args}
    return EnvPlan("mine", 1.0, source, f"Test/{name}", own, (), None, ROLLOUTS, AS_THEY_COME)


@pytest.fixture(autouse=True)
def no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENREWARD_API_KEY", "VAULT_CODE"):
        monkeypatch.delenv(name, raising=False)


def test_nothing_is_wrong_with_what_can_be_played() -> None:
    fine = [env(), env("Reverse"), env("Shop", variant="guess", split="test", samples=2)]
    assert openreward_problems(fine) == []


def test_it_may_be_asked_for_within_a_running_loop() -> None:
    async def ask() -> list[str]:
        return openreward_problems([env()])

    assert asyncio.run(ask()) == []


@pytest.mark.parametrize(
    ("args", "told"),
    [
        ({"name": "Nowhere"}, "has no environment `nowhere`; it has `guess`, `reverse`"),
        ({"variant": "shopp"}, "has no environment `shopp`"),
        ({"split": "trian"}, "no split `trian`: there is `train`, `empty`; did you mean `train`?"),
        ({"split": "empty"}, "the split has 0 tasks"),
        ({"samples": 5}, "the split has 3 tasks, and 5 are asked for"),
        ({"tools": ["look", "bye"]}, "no tool `bye`: there is .*did you mean `buy`?"),
        ({"name": "Locked"}, "asks for a key, and OPENREWARD_API_KEY is not set"),
        ({"name": "Unpaid"}, r"has no credit left for this key \(402\)"),
        ({"secrets": ["VAULT_CODE"]}, "needs VAULT_CODE in the environment or in .env"),
        ({"base_url": None}, "needs OPENREWARD_API_KEY in the environment or in .env"),
        ({"base_url": "http://127.0.0.1:9"}, "http://127.0.0.1:9 cannot be reached"),
    ],
)
def test_what_is_wrong_is_one_sentence(args: dict[str, Any], told: str) -> None:
    (problem,) = openreward_problems([env(**args)])
    assert re.search(told, problem), problem


def test_openrewards_own_servers_say_which_secrets_an_environment_needs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The platform is on the same address here, as the SDK's variables allow."""
    monkeypatch.setenv("OPENREWARD_API_KEY", KEY)
    monkeypatch.setenv("OPENREWARD_SESSION_URL", base_url())
    monkeypatch.setenv("OPENREWARD_API_URL", base_url())
    hosted: dict[str, Any] = {"base_url": None, "variant": "vault"}
    (problem,) = openreward_problems([env("Vault", **hosted)])
    assert problem.endswith('it asks for secrets: `secrets = ["VAULT_CODE"]`')
    monkeypatch.setenv("VAULT_CODE", "open sesame")
    assert openreward_problems([env("Vault", secrets=["VAULT_CODE"], **hosted)]) == []
