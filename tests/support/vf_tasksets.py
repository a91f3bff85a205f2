"""A taskset of verifiers 0.4, with a program of its own that runs in this process, as a package of
its hub has them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import httpx
import verifiers.v1 as vf

__all__ = ["Asking", "Sums"]


class SumData(vf.TaskData):
    answer: str = ""


class SumTask(vf.Task[SumData, vf.State, vf.TaskConfig]):
    @vf.reward(weight=2.0)
    async def exact(self, task: SumData, trace: vf.Trace) -> float:
        if task.answer == "13":
            raise ValueError("unlucky")
        return float(trace.last_reply == task.answer)

    @vf.metric
    async def words(self, trace: vf.Trace) -> float:
        return float(len(trace.last_reply.split()))

    async def validate(self, runtime: vf.Runtime) -> bool | None:
        return bool(self.data.answer != "3")


class Boxed(SumTask):
    NEEDS_CONTAINER = True


class Given(SumTask):
    """Solved before anything was done."""

    @vf.reward
    async def exact(self, task: SumData, trace: vf.Trace) -> float:
        return 1.0


class SumsConfig(vf.TasksetConfig):
    count: int | None = 3
    task_kind: str = "plain"


class Sums(vf.Taskset[SumTask, SumsConfig]):
    @property
    def INFINITE(self) -> bool:  # noqa: N802
        return self.config.count is None

    def load(self) -> Iterable[SumTask]:
        kind = {"plain": SumTask, "boxed": Boxed, "given": Given}[self.config.task_kind]
        for n in range(self.config.count or 1_000):
            asked = f"What is {n} + {n + 1}?"
            data = SumData(prompt=asked, system_prompt="Add.", answer=str(2 * n + 1))
            yield kind(data, self.config.task)


class AskingConfig(vf.HarnessConfig):
    """``plan``: what is asked after the first reply; ``>`` goes on from the last one, ``<`` from
    the first."""

    plan: list[str] = []
    path: str = "chat/completions"


class Asking(vf.Harness[AskingConfig]):
    APPENDS_SYSTEM_PROMPT = True
    EXECUTES_CODE = False
    NEEDS_CONTAINER = False

    async def launch(
        self,
        ctx: vf.ModelContext,
        trace: vf.Trace,
        runtime: vf.Runtime,
        endpoint: str,
        secret: str,
        mcp_urls: dict[str, str],
        data: vf.TaskData,
    ) -> vf.ProgramResult:
        async def ask(said: list[dict[str, Any]]) -> list[dict[str, Any]]:
            key = {"Authorization": f"Bearer {secret}", "x-api-key": secret}
            body = {"model": ctx.model, "messages": said, "max_tokens": 8}
            answer = await http.post(f"{endpoint}/{self.config.path}", json=body, headers=key)
            answer.raise_for_status()
            return [*said, answer.json()["choices"][0]["message"]]

        system, prompt = self.resolve_prompt(data)
        begun = [{"role": "system", "content": system}, {"role": "user", "content": prompt}]
        async with httpx.AsyncClient(timeout=None, trust_env=False) as http:
            first = last = await ask([one for one in begun if one["content"]])
            for more in self.config.plan:
                base = first if more.startswith("<") else last
                last = await ask([*base, {"role": "user", "content": more[1:]}])
        return vf.ProgramResult(exit_code=0, stdout="", stderr="")
