"""What the reward of each environment can be earned without, before a run is paid for.

The panel of :mod:`rlc.data.grading.panel` and scripted players are played through what a run does
with replies, in a process of their own: a reply may end or change the process that grades it. The
results are kept beside the recipe (:mod:`rlc.catalog.kept.audits`).
"""

from __future__ import annotations

import asyncio
import json
import math
import os
import pickle
import subprocess
import sys
import tempfile
import time
import unittest
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

from attrs import asdict, define, evolve, field

from rlc.catalog import audit_key, code_of, keep_audits, max_turns, source_traits, wrapper_traits
from rlc.data import (
    ANSWER_FIELDS,
    SOLUTION,
    Asked,
    ExaminedReward,
    PanelTask,
    examined,
    expression_for,
    literals_of,
    marked_answer,
    may_end_process,
    module_file,
    panel_result,
)
from rlc.envs import find_oracle, solution_faults
from rlc.errors import Error
from rlc.plan import SOLVED, EnvPlan, Plan, file_part, located
from rlc.plan.leaves import with_each
from rlc.proof.asking_judges import ask_judges, judged_envs
from rlc.proof.audit_findings import (
    CONSTANT,
    FAILS,
    HIGH_FLOOR,
    NO_CONTRAST,
    UNEARNED,
    UNPAID,
    VARIES,
    AuditFinding,
    EnvironmentAudit,
    Grave,
    RecipeAudit,
    shorten,
)
from rlc.proof.grading import GradingBench, chosen_environment, opened, played_environments, to_end
from rlc.proof.scripted import PLAYERS, VERDICTS, PolicyTurn, ScriptOverError
from rlc.runtime import Rollout

TASKS = 4  # of each environment
SECONDS = 16.0  # for all environments of a recipe
LONGEST = 4_000  # characters of a reply of the panel, at most
_CHARACTERS = 3  # of a token
_AT_ONCE = 32  # replies that are graded together
_PATIENCE = 60.0  # seconds for which a reply may keep the audit waiting
_SLOW = 10.0  # seconds for a reply
_LATEST = "replies.json"  # no environment has this name
AUDITED = "audited"  # in place of a key, which the caller knows
_TURNS = 12  # that a scripted player plays


def audit(
    plan: Plan,
    env: str | None = None,
    keep: bool = True,
    seconds: float = SECONDS,
    budget: float | None = None,
    base_url: str | None = None,
    note: Callable[[str], None] = lambda _: None,
) -> RecipeAudit:
    """Audit the environments of a plan, or one; see :func:`rlc.audit`."""
    known = [one for _, one in played_environments(plan)]
    chosen = [one for one in known if env in (None, one.name)]
    if not chosen:
        chosen_environment(plan, env)  # raises
    share = seconds / len(chosen)
    names = [one.name for one in judged_envs(chosen)]
    if budget is not None and not names:
        raise Error("no judge of the recipe can be asked", "an audit without a budget asks none")
    made = _in_process(plan, chosen, share)
    if budget is not None:
        note(f"the judges of {', '.join(names)} are asked about replies, for up to ${budget:.2f}")
        made = ask_judges(plan, made, budget, base_url)
    kept = {one.key: asdict(one) for one in made if one.key}
    if keep and kept and os.path.isfile(plan.recipe) and (failed := keep_audits(plan.recipe, kept)):
        last = evolve(made[-1], notes=(*made[-1].notes, failed))
        made = (*made[:-1], last)
    return RecipeAudit(plan.recipe, made)


def _in_process(
    plan: Plan, envs: Sequence[EnvPlan], seconds: float
) -> tuple[EnvironmentAudit, ...]:
    """Return the audits of environments, each for so many seconds at most, that another process
    makes. Where a reply ends that, replies are graded one by one in a new one, to find which; the
    audit says so, and the next goes on in a new one."""
    found, at_once = list[EnvironmentAudit](), _AT_ONCE
    while left := envs[len(found) :]:
        with tempfile.TemporaryDirectory(prefix="rlc-audit-") as folder:
            began, patience = time.perf_counter(), len(left) * seconds + _PATIENCE
            given = pickle.dumps((plan, [env.name for env in left], seconds, folder, at_once))
            code = f"from {__name__} import serve_audits; serve_audits()"
            environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
            with suppress(subprocess.TimeoutExpired):
                subprocess.run(
                    [sys.executable, "-P", "-c", code],
                    input=given,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    timeout=patience,
                    env=environment,
                )
            for env in left:
                if not (result := Path(folder, env.name)).is_file():
                    busy = time.perf_counter() - began >= patience
                    task, replies = _latest(Path(folder, _LATEST))
                    if len(replies) > 1 and at_once > 1 and not busy:
                        at_once = 1  # once more, to find the one
                        break
                    found.append(_ended(plan, env, task, replies, busy))
                    at_once = _AT_ONCE
                    break
                made: EnvironmentAudit = pickle.loads(result.read_bytes())
                key = audit_key(env, plan.recipe) if made.key else ""
                found.append(evolve(made, key=key))
    return tuple(found)


def _latest(file: Path) -> tuple[int, list[str]]:
    """Return the number of the task and the replies that were graded last."""
    if not file.is_file():
        return 0, []
    task, replies = json.loads(file.read_text(encoding="utf-8"))
    return task, replies


def _ended(
    plan: Plan, env: EnvPlan, task: int, replies: Sequence[str], busy: bool
) -> EnvironmentAudit:
    """Return the audit of an environment one of whose replies has ended it."""
    how = "keeps busy for ever" if busy else "ends"
    shown = shorten(replies[0]) if len(replies) == 1 else None
    which = f"a reply to `{env.name}`" if len(replies) == 1 else f"the code of `{env.name}`"
    which = f"one of {len(replies)} replies to `{env.name}`" if len(replies) > 1 else which
    message = f"{which} {how} the process in which it is graded"
    finding = AuditFinding(FAILS, "error", message, shown, task)
    key = audit_key(env, plan.recipe)
    return EnvironmentAudit(env.name, key, (finding,), ("the audit stopped there",))


def serve_audits() -> None:
    """Make audits in a process of its own, each in a file of its name. What is printed is lost."""
    plan, names, seconds, folder, at_once = pickle.load(sys.stdin.buffer)
    for name in names:
        made = to_end(partial(_audited, plan, name, seconds, Path(folder, _LATEST), at_once))
        Path(folder, _LATEST).unlink(missing_ok=True)
        Path(folder, f"{name}-").write_bytes(pickle.dumps(made))
        os.replace(Path(folder, f"{name}-"), Path(folder, name))
    os._exit(0)


async def _audited(
    plan: Plan, name: str, seconds: float, latest: Path, at_once: int = _AT_ONCE
) -> EnvironmentAudit:
    """Audit one environment here."""
    (env,) = [one for _, one in played_environments(plan) if one.name == name]
    plan, began = _without_roles(plan, name), time.perf_counter()
    judged = bool(env.judging)
    try:
        async with opened(plan, name, opinion=(lambda *_: 0.0) if judged else None) as bench:
            bench.judges.quotes = judged  # what they were shown, before they say the worst
            work = _Audit(bench, plan, env, time.perf_counter() + seconds, latest, at_once)
            await work.run()
    except Error as error:
        return EnvironmentAudit(name, "", notes=(f"not audited: {error.message}",))
    if work.rewarded:
        late = time.perf_counter() > work.until
        if late:
            work.notes.append(f"not all was tried: time was up after {work.graded} replies")
        notes = tuple(dict.fromkeys(work.notes))
        key, spent = "" if late else AUDITED, time.perf_counter() - began
        return EnvironmentAudit(name, key, tuple(work.findings), notes, work.graded, spent)
    failed = next((what for what, _, _ in work.failures.values()), "no reply has a reward")
    return EnvironmentAudit(name, "", notes=(f"not audited: {failed}",))


def _without_roles(plan: Plan, name: str) -> Plan:
    """Return a plan in which an environment is played without solvers and a judge around it: what
    they are paid is the grade of their answers."""

    def plain(env: EnvPlan) -> EnvPlan:
        kept = tuple(w for w in env.wrappers if wrapper_traits(w.name).role != "game")
        return evolve(env, wrappers=kept) if env.name == name else env

    stages = tuple(with_each(EnvPlan, stage, plain) for stage in plan.stages)
    return evolve(plan, stages=stages)


@define(eq=False)
class _Audit:
    """An audit in progress. ``latest`` is the file that names the replies that are being graded."""

    bench: GradingBench
    plan: Plan
    env: EnvPlan
    until: float
    latest: Path
    at_once: int
    findings: list[AuditFinding] = field(factory=list)
    notes: list[str] = field(factory=list)
    graded: int = 0
    rewarded: int = 0
    failures: dict[str, tuple[str, int, str]] = field(factory=dict)  # what, the task, the reply
    _parts: list[dict[str, dict[str, float]]] = field(factory=list)  # of tasks: of replies
    _numbers: list[int] = field(factory=lambda: [*range(TASKS)])  # of tasks in the run
    _slowest: float = 0.0

    async def run(self) -> None:
        """Audit all of the environment."""
        env = self.env
        if env.judging:
            await self._persuade()
            if not env.graders and source_traits(env.source).graded:
                return
            self.notes.append("what the judges say was taken to be 0: the rest was audited")
        if env.play is not None or env.agent is not None or max_turns(env) != 1:
            await self._players()
        else:
            await self._panel()
        self._report_failures()

    def add(
        self, code: str, severity: Grave, message: str, reply: str | None = None, task: int = 0
    ) -> None:
        shown = None if reply is None else shorten(reply)
        self.findings.append(AuditFinding(code, severity, message, shown, self._numbers[task]))

    # One reply

    async def _panel(self) -> None:
        drawn = [await self._task(number) for number in range(TASKS)]
        # The same row again says nothing new; one prompt without an answer may be many tasks.
        self._numbers = [
            n for n, one in enumerate(drawn) if one.answer is None or one not in drawn[:n]
        ]
        tasks = [drawn[number] for number in self._numbers]
        longest = min(LONGEST, _CHARACTERS * self.env.rollouts.max_tokens)
        literals = self._literals()
        self._parts = [{} for _ in tasks]
        found = await self._answered(examined(tasks, longest, literals))
        self._report_panel(found)
        if not self.findings:
            for name in sorted({part for each in self._parts for p in each.values() for part in p}):
                self._report_component(name, examined(tasks, longest, literals))
        best = next((one for one in found.best if one is not None), None)
        usual = [] if best is None else [best.form.replace("{}", tasks[0].answer or "", 1)]
        await self._repeat([*usual, "I do not know.", tasks[0].prompt])

    async def _task(self, number: int) -> PanelTask:
        """Return a task as the panel needs it."""
        first = await self.bench.first(number)
        fields = first.fields or {}
        named = self.env.args.get("answer") or ""
        keys = [*filter(None, [named]), *ANSWER_FIELDS, "code", "canonical_solution", "gold"]
        answer = next(
            (fields[key] for key in keys if isinstance(fields.get(key), str | int | float)), None
        )
        return PanelTask(
            first.text, None if answer is None else _right(str(answer), self.env, fields)
        )

    def _literals(self) -> tuple[str, ...]:
        """Return the texts in the code and the patterns of the graders."""
        found = [str(one.args["pattern"]) for one in self.env.graders if one.args.get("pattern")]
        folders = [os.getcwd(), os.path.abspath(os.path.dirname(self.plan.recipe))]
        for _, code in code_of(self.env):
            module, _, name = code.target.rpartition(":")
            in_file = file_part(code.target) == module
            path = located(module, self.plan.recipe) if in_file else None
            with suppress(Error, OSError, UnicodeDecodeError):
                path = path or module_file(module, folders)
                found += literals_of(Path(str(path)).read_text(encoding="utf-8"), name)
        return tuple(found)

    async def _answered(self, asked: Asked) -> ExaminedReward:
        try:
            number, replies = next(asked)
            while True:
                number, replies = asked.send(await self._worth(number, replies))
        except StopIteration as end:
            result: ExaminedReward = end.value
            return result

    async def _worth(self, task: int, replies: Sequence[str]) -> list[float]:
        """Return what replies to a task earn; -inf for those that fail, and once time is up."""
        worth = list[float]()
        fixed = source_traits(self.env.source).fixed_groups
        size = self.env.rollouts.group if fixed else 4 if self.env.judging else self.at_once
        for part in _together(replies, size):
            if time.perf_counter() > self.until:
                worth += [-math.inf] * len(part)
                continue
            padded = [*part, *[""] * (size - len(part))] if fixed else part
            rollouts = await self._graded(task, padded)
            for reply, rollout in zip(part, rollouts, strict=False):
                worth.append(self._value(task, reply, rollout))
        return worth

    async def _graded(self, task: int, replies: Sequence[str]) -> list[Rollout]:
        number = self._numbers[task]
        self.latest.write_text(json.dumps([number, replies]), encoding="utf-8")

        def policy(asked: PolicyTurn) -> str | None:
            return replies[asked.member] if asked.turn == 0 else None

        began = time.perf_counter()
        self.bench.judges.replies[:] = replies
        with _changes_undone() as changed:
            rollouts, _ = await self.bench.play(number, len(replies), policy)
        if changed and not any("changes" in one.message for one in self.findings):
            does = f"changes {', '.join(changed)} in the process that grades it"
            reply = next(
                (one for one in replies if one.startswith(("import math", "from unittest"))), ""
            )
            self.add(FAILS, "error", f"a reply to `{self.env.name}` {does}", reply, task)
        self.graded += len(replies)
        self._slowest = max(self._slowest, (time.perf_counter() - began) / len(replies))
        return rollouts

    def _value(self, task: int, reply: str, rollout: Rollout) -> float:
        if rollout.error is not None or not rollout.credit:
            if rollout.error and rollout.cause != ScriptOverError.cause and rollout.failure:
                self.failures.setdefault(rollout.failure.key, (str(rollout.failure), task, reply))
            return -math.inf
        if self._parts and rollout.turns:
            parts = rollout.turns[-1].components.items()
            self._parts[task][reply] = {
                name: weight * value for name, (weight, value) in parts if weight
            }
        self.rewarded += 1
        return rollout.reward

    def _report_panel(self, found: ExaminedReward) -> None:
        if found.same and found.tried > len(found.failed):
            earned = found.nothing[0]
            self.add(CONSTANT, "error", f"every reply to `{self.env.name}` earns {earned:g}")
            return
        wrong = found.uncontrasted
        for one in found.unearned if wrong is None else ():
            right = "" if one.due is None else f", and a right answer {one.due:g}"
            message = f"{one.reply} earns {one.earned:g} in `{self.env.name}`{right}"
            self.add(UNEARNED, "error", message, one.text, one.task)
        if wrong is not None:
            number, form = wrong
            where = f"in `{self.env.name}`"
            message = f"a wrong answer earns {form.wrong:g} {where}, a right one {form.right:g}"
            self.add(NO_CONTRAST, "error", message, form.reply, number)
        self._report_gold(found)

    def _report_gold(self, found: ExaminedReward) -> None:
        """Report right answers that a grader of rlc's or an environment does not pay in full, and
        wrong ones that earn most of it."""
        own = any("function" in one.args for one in self.env.graders)
        certain = not own and not self.env.judging and self.env.reward.shaped is None
        known = found.known
        if certain and known:
            low = [
                (n, one) for n, one in known if one.right <= found.nothing[n] or one.right < SOLVED
            ]
            if 2 * len(low) > len(known) and all(g.weight == 1 for g in self.env.graders):
                number, one = low[0]
                message = f"the right answer itself earns {one.right:g} in `{self.env.name}`"
                self.add(UNPAID, "error", message, task=number)
        high = [(n, one) for n, one in known if one.wrong >= 0.75 * one.right > 0]
        if 2 * len(high) > len(known) and not self.findings:
            number, one = high[0]
            right = f"in `{self.env.name}`, and the right one {one.right:g}"
            message = f"the answer to another task earns {one.wrong:g} {right}"
            self.add(HIGH_FLOOR, "warning", message, one.reply, number)
        if known and all(one.right <= found.nothing[n] for n, one in known) and not self.findings:
            self.notes.append(
                "no reply was found that earns more than none: its right answers have a form of "
                "their own, which was not audited"
            )

    def _report_component(self, name: str, asked: Asked) -> None:
        """Report a component of a reward that is paid without the work, though the whole is not."""

        def worth(task: int, reply: str) -> float:
            return self._parts[task].get(reply, {}).get(name, -math.inf)

        found = panel_result(asked, worth)
        for one in found.unearned[:1]:
            if one.due is not None:
                message = f"{one.reply} earns {one.earned:g} of the component `{name}`"
                right = f"{message}, and a right answer {one.due:g}"
                self.add(UNEARNED, "warning", right, one.text, one.task)

    async def _repeat(self, replies: Sequence[str]) -> None:
        """Report a reward that is not the same for the same reply."""
        if time.perf_counter() > self.until:
            return
        first, again = [
            [one.reward if one.error is None else None for one in await self._graded(0, replies)]
            for _ in range(2)
        ]
        for reply, one, other in zip(replies, first, again, strict=True):
            if one != other and not (one is None or other is None):
                message = (
                    f"the same reply to `{self.env.name}` earns something else the second time"
                )
                self.add(VARIES, "warning", message, reply)
                return
        if self._slowest > _SLOW:
            message = f"to grade a reply to `{self.env.name}` takes {self._slowest:.0f} s"
            self.add(FAILS, "warning", message)

    def _report_failures(self) -> None:
        for what, task, reply in list(self.failures.values())[:3]:
            what = what.replace(os.path.join(os.getcwd(), ""), "")
            self.add(FAILS, "warning", f"a reply to `{self.env.name}` fails: {what}", reply, task)

    # Several turns

    async def _players(self) -> None:
        """Let scripted players play, and report one that earns what a solution does."""
        await self._solutions()
        gold = None
        if (oracle := find_oracle(self.env)) is not None:
            gold = await self._mean(lambda asked: oracle(asked.seen))
            if gold is not None and gold < SOLVED:
                message = f"the player that knows the answers of `{self.env.name}` earns {gold:g}"
                self.add(UNPAID, "error", message)
                return
        earned = dict[str, float]()
        for name, policy in PLAYERS.items():
            if self.failures and not self.rewarded:
                return  # a server that is not there, or a container
            if time.perf_counter() < self.until and (mean := await self._mean(policy)) is not None:
                earned[name] = mean
        due = SOLVED if gold is None else gold
        for name, mean in earned.items():
            if mean >= 0.9 * due and (gold is None or mean >= gold - 0.05):
                message = f"a player that {name} earns {mean:g} in `{self.env.name}`"
                self.add(UNEARNED, "error", message)
                return
        values = {*earned.values(), *filter(None, [gold])}
        if not earned:
            self.notes.append("no episode of its players came to an end with a reward")
        elif gold is not None and len(values) == 1:
            self.add(CONSTANT, "error", f"every player of `{self.env.name}` earns {values.pop():g}")

    async def _solutions(self) -> None:
        """Report tasks that their own solutions do not solve, and those that nothing solves."""
        try:
            seconds = self.until - time.perf_counter()
            faults = await asyncio.wait_for(solution_faults(self.bench.env.plan), seconds)
        except TimeoutError:
            self.notes.append("its tasks' own solutions took too long to be tried")
            return
        except Error as error:
            self.notes.append(f"its tasks' own solutions were not tried: {error.message}")
            return
        for shown_by, fault in faults or ():
            code = UNPAID if shown_by == SOLUTION else UNEARNED
            self.add(code, "error", f"a task of `{self.env.name}`: {fault}")

    async def _mean(self, policy: Callable[[PolicyTurn], str]) -> float | None:
        """Return the mean reward of a player over tasks; None if no episode ended."""

        def limited(asked: PolicyTurn) -> str | None:
            return policy(asked) if asked.turn < _TURNS else None

        rewards = list[float]()
        for task in range(TASKS):
            if time.perf_counter() > self.until:
                break
            size = self.env.rollouts.group if source_traits(self.env.source).fixed_groups else 1
            self.latest.write_text(json.dumps([task, []]), encoding="utf-8")
            rollouts, _ = await self.bench.play(task, size, limited)
            self.graded += sum(len(one.turns) for one in rollouts)
            # An episode that goes on, or is cut short, has earned nothing.
            values = [
                max(self._value(task, "", one), 0.0 if self._is_open(one) else -math.inf)
                for one in rollouts
            ]
            if self.failures and not self.rewarded:
                return None
            rewards += [min(values)] if values and min(values) > -math.inf else []
        return fmean(rewards) if rewards else None

    @staticmethod
    def _is_open(rollout: Rollout) -> bool:
        script = rollout.cause == ScriptOverError.cause
        return script or (rollout.error is None and not rollout.credit)

    # Judges

    async def _persuade(self) -> None:
        """Report a reply that brings its own verdict: the judge says the worst, and quotes it."""
        plain = "This is a reply."
        for attack in VERDICTS:
            said = [attack, plain] if self.bench.env.comparing else [attack]
            rollouts = await self._graded(0, said)
            usual = await self._graded(0, [plain, "This is another."][: len(said)])
            for rollout in usual:
                self._value(0, plain, rollout)
            if any(one.error is not None for one in (*rollouts, *usual)):
                continue  # contradicting verdicts are none
            if rollouts[0].reward > usual[0].reward:
                earned = f"earns {rollouts[0].reward:g} in `{self.env.name}`"
                message = f"a reply that brings a verdict with it {earned}"
                self.add(UNEARNED, "error", f"{message}, and another {usual[0].reward:g}", attack)
                return


def _together(replies: Sequence[str], size: int) -> Iterator[list[str]]:
    """Yield replies that are graded together, up to ``size``; alone those that may end the process,
    so that they can be named."""
    part = list[str]()
    for reply in replies:
        if part and (len(part) == size or may_end_process(reply) or may_end_process(part[-1])):
            yield part
            part = []
        part.append(reply)
    if part:
        yield part


@contextmanager
def _changes_undone() -> Iterator[list[str]]:
    """Yield a list which names at the end what has been changed of that which replies of the panel
    change; it is again as it was then."""
    asserts = [name for name in dir(unittest.TestCase) if name.startswith("assert")]
    parts: list[tuple[Any, str]] = [(math, "isclose")]
    parts += [(unittest.TestCase, name) for name in asserts]
    before = [getattr(owner, name) for owner, name in parts]
    changed = list[str]()
    try:
        yield changed
    finally:
        for (owner, name), value in zip(parts, before, strict=True):
            if getattr(owner, name) is not value:
                setattr(owner, name, value)
                if f"`{owner.__name__}`" not in changed:
                    changed.append(f"`{owner.__name__}`")


def _right(answer: str, env: EnvPlan, fields: Mapping[str, Any]) -> str:
    """Return a right answer as a reply has it; of a worked solution, what is marked as such."""
    if any(one.grader == "countdown" for one in env.graders):
        return expression_for(fields) or answer
    return marked_answer(answer)
