"""Tests of recipes: their fields bound, and what they expect read."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

from rlc.catalog import (
    CONTAINS,
    DECLARATIONS,
    EPISODE_VALUES,
    LACKS,
    NEEDS,
    SCALARS,
    STAGES,
    TEST,
    Param,
    env_facts,
    source_traits,
)
from rlc.check.bind import Owner, bind
from rlc.check.expectations import CheckedExpectation, ExpectationReader
from rlc.check.scalars import NUMBERS, describe, report_misfit
from rlc.check.scope import known_values, rename
from rlc.check.stages import needed
from rlc.check.values import Value, settle
from rlc.lang import (
    COMPARISONS,
    Attribute,
    Binary,
    BlockDecl,
    Bool,
    Call,
    Diagnostics,
    Expectation,
    Expr,
    Label,
    ListExpr,
    Name,
    Negative,
    Number,
    Span,
    String,
    format_expression,
)
from rlc.plan import COMPARES, EnvPlan, located, shown_value
from rlc.pricing import JOB, values_of
from rlc.records import evolve, frozen

if TYPE_CHECKING:
    from rlc.check.evaluate import Evaluator
    from rlc.check.stages import CheckedStage
    from rlc.data import Reader

_VALUES = {param.name: param for param in EPISODE_VALUES}
_EXAMPLE = 'for example `reward("4") == 1`, `contains(prompt, "2 + 2")`, `main.cost.high < $20`'
_ROWS = 100  # of a file, whose fields a task may have
Plain = float | str | bool | None


@frozen(eq=False)
class OfEpisode:
    """A value of the episode in which these replies are given; ``part`` is a component of its
    reward."""

    name: str
    part: str | None
    replies: tuple[str, ...]
    text: str


@frozen(eq=False)
class OfPlan:
    """The value at a path of a stage's plan, or ``needs``: the names of what the stage needs; of
    the whole job if ``stage`` is None."""

    stage: str | None
    path: str
    text: str


Compared = OfEpisode | OfPlan


@frozen(eq=False)
class ValueComparison:
    """``left op right``: a comparison, or that a text (or what is needed) ``contains`` another, or
    ``lacks`` it."""

    left: Compared
    op: str
    right: Compared | Plain


@frozen(eq=False)
class CheckedCase:
    """One expectation of a test, where it is written, and its text. ``that`` compares values of
    episodes or the plan, or numbers of the job, also those that a rehearsal measures."""

    span: Span
    text: str
    that: ValueComparison | CheckedExpectation

    @property
    def after(self) -> bool:
        """Return whether only a rehearsal decides it."""
        return isinstance(self.that, CheckedExpectation) and self.that.plan.after


@frozen(eq=False)
class CheckedTest:
    """A test whose words are all understood. ``task`` is a row, or the number of one; ``judge`` has
    the scores of judges, as :func:`rlc.grade` takes them; ``rehearsed`` are the stages that the
    rehearsal runs."""

    decl: BlockDecl
    env: EnvPlan | None
    task: Mapping[str, Any] | int
    judge: Mapping[str, float] | Sequence[float] | float | None
    rehearse: str | None
    rehearsed: tuple[str, ...]
    steps: int
    within: float
    expectations: tuple[CheckedCase, ...]

    @property
    def name(self) -> str:
        return self.decl.name.id


def same_tasks(one: EnvPlan, other: EnvPlan) -> bool:
    """Return whether two environments pose the same tasks and reward them alike; how replies are
    sampled, their stage decides."""
    return one == evolve(other, rollouts=one.rollouts, weight=one.weight)


def check_tests(
    decls: Iterable[BlockDecl],
    evaluator: Evaluator,
    stages: Mapping[str, CheckedStage],
    found: Diagnostics,
    reader: Reader | None,
) -> tuple[CheckedTest, ...]:
    """Return the tests that can be read, after a report of what is wrong with the others."""
    checked = (_Checker(one, evaluator, stages, found, reader).checked() for one in decls)
    return tuple(test for test in checked if test is not None)


@frozen(eq=False)
class _Checker:
    decl: BlockDecl
    evaluator: Evaluator
    stages: Mapping[str, CheckedStage]
    found: Diagnostics
    reader: Reader | None

    def checked(self) -> CheckedTest | None:
        decl = self.decl
        self.evaluator.scope.used.add(decl.name.id)
        owner = Owner(TEST, "a `test`", "field", decl.name.span, unread=decl.unread)
        bound = bind(decl.fields, DECLARATIONS[TEST].fields, owner, self._value, self.found)
        if not bound.complete:
            return None
        values = bound.values
        given = {field.name.id: field.name.span for field in decl.fields}
        fits = [self._has_effect(given), self._task_fits(values)]
        parts = {name: settle(value) for name, value in values.items() if name != "expect"}
        expectations = self._expectations(values["expect"].data, values["replies"].data, parts)
        if expectations is None or not all(fits):
            return None
        parts.pop("replies")
        parts["env"] = parts["env"] and parts["env"][0]
        of = parts["rehearse"]
        ran = () if of is None else needed(list(self.stages.values()), of)
        parts["rehearsed"] = tuple(stage.name for stage in ran)
        return CheckedTest(decl, expectations=expectations, **parts)

    def _value(self, expr: Expr, want: Param) -> Any:
        match want.type:
            case "expectation":
                items = expr.items if isinstance(expr, ListExpr) else (expr,)
                return Value("expectation", items, expr.span, expr.span)
            case "task":
                kind = "int" if isinstance(expr, Number | Negative) else "record"
                low = 0 if kind == "int" else None
                return self.evaluator.scalars.fitting(expr, Param("task", kind, want.doc, low=low))
            case "stage" if not (isinstance(expr, Name) and expr.id == "none"):
                return self._stage(expr, want)
        value = self.evaluator.value(expr, want)
        if want.type == "env" and value is not None and value.data and len(value.data) > 1:
            names = [settle(one).name for one in value.data]
            message = "a test plays one environment, and this is a mixture of several"
            self.found.error("RL0853", expr.span, message, f"name one: {known_values(names)}")
            return None
        if want.type == "env" and value is not None and value.data:
            played = self._played(settle(value.data[0]), expr.span)
            return None if played is None else evolve(value, data=(played,))
        return value if want.name != "judge" or self._are_scores(value) else None

    def _played(self, env: EnvPlan, place: Span) -> EnvPlan | None:
        """Return an environment as a stage plays it: the same one, or the only one of its name.
        None after a report."""
        every = [one for stage in self.stages.values() for one in stage.parts.get("envs", ())]
        data = (stage.parts.get("data") for stage in self.stages.values())
        every += [one for each in data if each is not None for one in each.environments]
        found = [one for one in every if same_tasks(one, env)]
        alike = [one for one in every if one.name == env.name]
        if not found and alike and all(same_tasks(one, alike[0]) for one in alike):
            found = alike
        if found or not all(stage.complete for stage in self.stages.values()):
            return found[0] if found else env
        names = list(dict.fromkeys(one.name for one in every))
        message = f"no stage plays `{env.name}`, so there is nothing to test"
        advice = f"played are {known_values(names)}" if names else "this recipe plays none"
        if alike:
            message = f"stages play `{env.name}` in several ways, and none as it is here"
            advice = "write it as a stage does, with what comes behind its name there"
        self.found.error("RL0853", place, message, advice)
        return None

    def _are_scores(self, given: Value | None) -> bool:
        """Return whether these are scores of judges; report if not."""
        data = None if given is None else settle(given)
        listed = [*data.values()] if isinstance(data, dict) else data
        listed = listed if isinstance(listed, list) else [listed]
        if given is None or all(type(n) in (int, float) and 0 <= n <= 1 for n in listed):
            return given is not None
        message = f"`judge` takes scores from 0 to 1, found {given.span.text}"
        self.found.error(
            "RL0202", given.span, message, "0 is the worst that a judge says, 1 the best"
        )
        return False

    def _stage(self, expr: Expr, want: Param) -> Any:
        scope = self.evaluator.scope
        decl = scope.find(expr, tuple(STAGES), self.found) if isinstance(expr, Name) else None
        if decl is not None and decl.kind.id in STAGES:
            return Value("stage", decl.name.id, expr.span, expr.span)
        if decl is not None or not isinstance(expr, Name):
            report_misfit(expr, want, scope, self.found)
        return None

    def _has_effect(self, given: Mapping[str, Span]) -> bool:
        """Return whether no field is without effect; report one."""
        needed = dict.fromkeys(("task", "replies", "judge"), "env")
        needed |= dict.fromkeys(("steps", "within"), "rehearse")
        for name, other in needed.items():
            if name in given and other not in given:
                message = f"`{name}` has no effect without `{other}`"
                advice = f"add `{other} = …`, or leave `{name}` out"
                self.found.error("RL0853", given[name], message, advice)
                return False
        return True

    def _task_fits(self, values: Mapping[str, Value]) -> bool:
        """Return whether the environment has such a task; report if not."""
        task, envs = values["task"], settle(values["env"].data)
        if not isinstance(task.data, dict) or not envs:
            return True
        (env,) = envs
        if not source_traits(env.source).graded:
            message = f"`{env.source}()` makes its tasks itself, and takes no row"
            self.found.error("RL0850", task.span, message, "give the number of one: `task = 0`")
            return False
        ignored = env_facts(env).ignores
        fields = ("question", "prompt", "answer")
        named = [env.args.get(name) for name in fields if name not in ignored]
        missing = [name for name in named if name is not None and name not in task.data]
        if missing:
            names = " and ".join(f"`{name}`" for name in missing)
            message = f"a task of `{env.name}` has {names}, and this one has not"
            advice = f"add {', '.join(f'`{name} = …`' for name in missing)}"
            self.found.error("RL0850", task.span, message, advice)
        known = self._columns(env)
        unknown = [name for name in task.data if known and name not in (*known, *missing)]
        for name in unknown:
            place = (task.keys or {}).get(name, task.span)
            message = f"the tasks of `{env.name}` have no field `{name}`"
            advice, fix = known_values(known, name), rename(place, name, known)
            self.found.error("RL0850", place, message, advice, fix=fix)
        return not missing and not unknown

    def _columns(self, env: EnvPlan) -> list[str]:
        """Return the fields of an environment's rows; none if they are not known."""
        path = located(env.id, self.evaluator.recipe)
        if self.reader is None or not os.path.isfile(path):
            return []
        rows = islice(self.reader.read(path).rows, _ROWS)
        return list(dict.fromkeys(str(name) for row in rows for name in row.fields))

    def _expectations(
        self, items: Sequence[Expr], replies: Sequence[Value], parts: Mapping[str, Any]
    ) -> tuple[CheckedCase, ...] | None:
        if not items:
            message = "this test expects nothing, so it always passes"
            self.found.error("RL0851", self.decl.name.span, message, _EXAMPLE)
            return None
        numbers = ExpectationReader(self.evaluator, self.stages, self.found)
        env = parts["env"][0] if parts["env"] else None
        given = tuple(settle(one) for one in replies)
        reader = _Expectations(numbers, env, given, parts["rehearse"])
        checked = [reader.read(item) for item in items]
        whole = [one for one in checked if one is not None]
        return tuple(whole) if len(whole) == len(checked) and reader.agree(whole) else None


@frozen(eq=False)
class _Expectations:
    """Reads the expectations of a test in an environment, with these replies, and the stage that is
    rehearsed."""

    numbers: ExpectationReader
    env: EnvPlan | None
    given: tuple[str, ...]
    rehearse: str | None

    @property
    def found(self) -> Diagnostics:
        return self.numbers.found

    @property
    def stages(self) -> Mapping[str, CheckedStage]:
        return self.numbers.stages

    def read(self, expr: Expr) -> CheckedCase | None:
        """Return what is expected; None after a report."""
        that: ValueComparison | CheckedExpectation | None = None
        match expr:
            case Call(func=Name(id=word)) if word == CONTAINS:
                that = self._contains(expr, True)
            case Binary(op="==" | "!=" as op, left=Call(func=Name(id=word)) as call, right=Bool()):
                if word == CONTAINS:
                    that = self._contains(call, (op == "==") == expr.right.value)  # type: ignore[attr-defined]
                else:
                    that = self._compared(expr)
            case Binary(op=op) if op in COMPARISONS:
                that = self._compared(expr)
            case _:
                message = f"a test expects comparisons, found {describe(expr)}"
                self.found.error("RL0851", expr.span, message, _EXAMPLE)
        return None if that is None else CheckedCase(expr.span, format_expression(expr), that)

    def agree(self, expectations: Iterable[CheckedCase]) -> bool:
        """Return whether no two expect different values of one thing; report those that do, and
        what is expected twice."""
        first: dict[str, CheckedCase] = {}
        agreed = True
        for one in expectations:
            that, key = one.that, one.text
            if isinstance(that, ValueComparison) and that.op == "==" and _is_plain(that.right):
                key = f"{that.left.text} =="
            earlier = first.setdefault(key, one)
            if earlier is one:
                continue
            label = Label(earlier.span, "the first time")
            if earlier.text == one.text:
                message = f"`{one.text}` is expected twice"
                self.found.warning("RL0854", one.span, message, "keep one of them", label)
            else:
                message = f"`{one.text}` and `{earlier.text}` cannot both hold"
                self.found.error("RL0854", one.span, message, "keep one of them", label)
                agreed = False
        return agreed

    def _contains(self, call: Call, wanted: bool) -> ValueComparison | None:
        values = [argument.value for argument in call.args if argument.name is None]
        if len(values) != 2 or len(call.args) != 2:
            message = f"`{CONTAINS}()` takes what is looked at, and a text"
            advice = f'for example `{CONTAINS}(prompt, "2 + 2")`, `{CONTAINS}(main.needs, "torch")`'
            self.found.error("RL0851", call.span, message, advice)
            return None
        left, text = self._operand(values[0]), self._text(values[1], "what is looked for")
        if left is None or text is None:
            return None
        if isinstance(left, OfEpisode) and _VALUES[left.name].type != "string":
            message = f"`{left.text}` is {SCALARS[_VALUES[left.name].type]}, and contains no text"
            advice = "compare it: `==`, `<`, `>`"
            self.found.error("RL0851", values[0].span, message, advice)
            return None
        return ValueComparison(left, CONTAINS if wanted else LACKS, text)

    def _compared(self, expr: Binary) -> ValueComparison | CheckedExpectation | None:
        if self._names_episode(expr.left):
            return self._of_episode(expr)
        if not isinstance(expr.left, Name | Attribute):
            message = f"the left side is what a test looks at, and this is {describe(expr.left)}"
            self.found.error("RL0851", expr.left.span, message, _EXAMPLE)
            return None
        is_none = isinstance(expr.right, Name) and expr.right.id == "none"
        if is_none or isinstance(expr.right, String | Bool):
            return self._of_plan(expr)
        kind = Name(expr.left.span, "expect")
        one = self.numbers.read(Expectation(expr.span, kind, expr))
        if one is None or not one.plan.after:
            return one
        measured = [quantity for quantity in one.plan.quantities if quantity.kind == "metric"]
        ran = [] if self.rehearse is None else needed(list(self.stages.values()), self.rehearse)
        lost = next((q for q in measured if q.stage not in [stage.name for stage in ran]), None)
        if lost is None:
            return one
        message = f"`{lost.path}` is known only after a run"
        advice = f"add `rehearse = {lost.stage}`, which runs that on the tiny model"
        if self.rehearse is not None:
            message = f"the rehearsal of `{self.rehearse}` does not run `{lost.stage}`"
            advice = f"write `rehearse = {lost.stage}`"
        self.found.error("RL0853", expr.left.span, message, advice)
        return None

    def _of_plan(self, expr: Binary) -> ValueComparison | None:
        """Read `main.model.base == "tiny"`: a value that is no number."""
        assert isinstance(expr.left, Name | Attribute)
        left = self._value(expr.left)
        if left is None:
            return None
        value = None if isinstance(expr.right, Name) else expr.right.value  # type: ignore[attr-defined]
        if expr.op not in ("==", "!="):
            message = f"only numbers are greater and smaller, and this is {describe(expr.right)}"
            self.found.error("RL0851", expr.right.span, message, "use `==` or `!=`")
            return None
        known = values_of(self.stages[str(left.stage)].plan())[left.path]
        if type(known) is not type(value) and None not in (known, value):
            message = f"`{left.text}` is {shown_value(left.path, known)}, and this is "
            message += describe(expr.right)
            self.found.error("RL0851", expr.right.span, message, "compare it with one of its kind")
            return None
        return ValueComparison(left, expr.op, value)

    def _of_episode(self, expr: Binary) -> ValueComparison | None:
        left = self._episode(expr.left)
        if left is None:
            return None
        param, right, text = _VALUES[left.name], expr.right, expr.right.span.text
        value: Compared | Plain
        if param.choices:
            word = self.numbers.evaluator.scalars.fitting(right, param)
            if word is None:
                return None
            value, kind = str(settle(word)), "string"
        elif self._names_episode(right):
            other = self._episode(right)
            if other is None:
                return None
            value, kind = other, _VALUES[other.name].type
        else:
            want = Param(left.text, param.type, param.doc)
            plain = self.numbers.evaluator.scalars.plain(right, want)
            if plain is None:
                return None
            value, kind = settle(plain), plain.type
        if (kind in NUMBERS) != (param.type in NUMBERS) or kind not in (*NUMBERS, "string"):
            message = f"`{left.text}` is {SCALARS[param.type]}, and `{text}` is not"
            advice = f"{left.name}: {param.doc}"
            self.found.error("RL0851", right.span, message, advice)
            return None
        if param.type not in NUMBERS and expr.op not in ("==", "!="):
            message = f"`{left.text}` is a text, which is neither greater nor smaller"
            advice = f'use `==`, or `{CONTAINS}({left.text}, "…")`'
            self.found.error("RL0851", expr.span, message, advice)
            return None
        made = ValueComparison(left, expr.op, value)
        return made if self._can_hold(expr, made) else None

    def _can_hold(self, expr: Binary, made: ValueComparison) -> bool:
        """Return whether an episode can be as expected; report if none can."""
        left, right = made.left, made.right
        assert isinstance(left, OfEpisode)
        assert self.env is not None
        if not isinstance(right, int | float) or left.part is not None:
            return True
        low, high = -math.inf, math.inf
        if left.name == "turns":
            low, high = 1, len(left.replies)
            what = f"{high:.0f} repl{'y is' if high == 1 else 'ies are'} given"
        else:
            limits = self.env.reward
            low = low if limits.low is None else limits.low
            high = high if limits.high is None else limits.high
            ends = ((low, "at least"), (high, "at most"))
            limited = " and ".join(f"{how} {end:g}" for end, how in ends if math.isfinite(end))
            what = f"a reward of `{self.env.name}` is {limited}"
        tries = {min(max(value, low), high) for value in (low, high, right, right - 1, right + 1)}
        if any(COMPARES[made.op](one, right) for one in tries):
            return True
        message = f"`{format_expression(expr)}` can never hold: {what}"
        self.found.error("RL0852", expr.span, message, "correct the number, or the replies")
        return False

    def _names_episode(self, expr: Expr) -> bool:
        func = expr.func if isinstance(expr, Call) else expr
        head = func.value if isinstance(func, Attribute) else func
        if not isinstance(head, Name) or head.id not in _VALUES:
            return False
        return isinstance(expr, Call) or head.id not in self.stages  # which may be called `end`

    def _operand(self, expr: Expr) -> Compared | None:
        """Return what a path or call names; None after a report."""
        if self._names_episode(expr):
            return self._episode(expr)
        if isinstance(expr, Attribute) and expr.attr.id == NEEDS and isinstance(expr.value, Name):
            head = expr.value.id
            if head in self.stages or head == JOB:
                return OfPlan(None if head == JOB else head, NEEDS, format_expression(expr))
        if isinstance(expr, Name | Attribute):
            return self._value(expr)
        message = f"nothing to look at: this is {describe(expr)}"
        self.found.error("RL0851", expr.span, message, _EXAMPLE)
        return None

    def _value(self, expr: Name | Attribute) -> OfPlan | None:
        """Return a value of the plan; None after a report."""
        path = format_expression(expr)
        head, _, inside = path.partition(".")
        stage, key = self.stages.get(head), inside
        if stage is None:  # a model, which every stage on it has
            on = (one for one in self.stages.values() if "model" in one.parts)
            stage = next((one for one in on if one.parts["model"].name == head), None)
            key = f"model.{inside}"
        if stage is not None and stage.complete and key in values_of(stage.plan()):
            return OfPlan(stage.name, key, path)
        if self.numbers.find(expr) is not None:  # which reports what nothing is called
            message = f"`{path}` is a number"
            self.found.error("RL0851", expr.span, message, "compare it with a number")
        return None

    def _episode(self, expr: Expr) -> OfEpisode | None:
        """Return what `reward`, `reward.format("…")` and the like name; None after a report."""
        func = expr.func if isinstance(expr, Call) else expr
        head = func.value if isinstance(func, Attribute) else func
        part = func.attr.id if isinstance(func, Attribute) else None
        assert isinstance(head, Name)
        if part is not None and head.id != "reward":
            message = f"`{head.id}` has no parts"
            self.found.error("RL0851", expr.span, message, f"only `reward` has: `reward.{part}`")
            return None
        if self.env is None:
            message = f"`{head.id}` is of an episode, and this test has no environment"
            self.found.error("RL0853", expr.span, message, "add `env = …`")
            return None
        replies: tuple[str, ...] | None = self.given
        if isinstance(expr, Call):
            replies = self._replies(expr, head.id)
        if replies is None:
            return None
        if not replies and head.id != "prompt":
            message = f"`{head.id}` is of an episode, and no reply is given"
            advice = f'write `{head.id}("…")`, or add `replies = ["…"]` to the test'
            self.found.error("RL0853", expr.span, message, advice)
            return None
        return OfEpisode(head.id, part, replies, format_expression(expr))

    def _replies(self, call: Call, name: str) -> tuple[str, ...] | None:
        if name == "prompt" or not call.args:
            takes = "no replies" if name == "prompt" else "the replies of the model, one a turn"
            advice = "write it without parentheses" if name == "prompt" else f'`{name}("…")`'
            self.found.error("RL0851", call.span, f"`{name}()` takes {takes}", advice)
            return None
        texts = [self._text(argument.value, "a reply") for argument in call.args]
        named = next((argument.name for argument in call.args if argument.name), None)
        if named is not None:
            message = f"`{name}()` takes the replies alone, without names"
            self.found.error("RL0851", named.span, message, f'`{name}("…", "…")`')
            return None
        known = tuple(text for text in texts if text is not None)
        return known if len(known) == len(texts) else None

    def _text(self, expr: Expr, doc: str) -> str | None:
        value = self.numbers.evaluator.scalars.fitting(expr, Param("text", "string", doc))
        return None if value is None else str(settle(value))


def _is_plain(right: Compared | Plain) -> bool:
    return not isinstance(right, OfEpisode | OfPlan)
