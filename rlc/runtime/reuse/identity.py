"""What a stage of a plan is, by content: the key of its steps, or of its evaluations, and those of
the examples that are made for it.

Two stages with one key compute the same, to the bit on the embedded engine. What a key has, and
what it leaves out, is in docs/finished-work.md.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from glob import glob
from pathlib import Path
from typing import Any

from attrs import evolve, field, frozen

from rlc.catalog import (
    DOTENV,
    WeightsError,
    code_of_stage,
    find_provider,
    find_weights,
    is_run_weights,
    read_dotenv,
    with_files,
)
from rlc.catalog.kept.content import (
    UnknownContentError,
    code_digest,
    digest_of,
    file_digest,
    folder_digest,
    machine,
    named_files,
    package_version,
    rlc_digest,
)
from rlc.catalog.requirements import requirements
from rlc.data import Code, DataError, module_file
from rlc.plan import (
    JOURNAL_FILE,
    AnyData,
    EndpointPlan,
    ModelState,
    Plan,
    StagePlan,
    Training,
    content_hash,
    file_part,
    hub_dataset,
    is_evaluation,
    is_training,
    located,
    plan_to_dict,
)
from rlc.plan.leaves import needed_stages, with_each

VERSION = "1"  # of what is in a key
# What no number of a step depends on: where it is saved, sent to, and how long it may take.
_TRAINING = ("steps", "epochs", "save", "budget", "track", "deadlines")
_EVALUATION = ("every", "first")


@frozen
class Identity:
    """The keys of a stage. ``steps``: of the steps of a training, or of the evaluations of a stage;
    None if something that decides them cannot be known, which ``why`` says. ``examples``: of the
    examples that are made for it, by what their files have behind the name of the stage."""

    steps: str | None
    examples: Mapping[str, str] = field(factory=dict)
    why: str = ""


def identities(plan: Plan, base_url: str | None = None) -> dict[str, Identity]:
    """Return what each stage of a plan is, as the files that it names are now; ``base_url`` is that
    of a server in place of the hosted service."""
    found = dict[str, Identity]()
    for stage in plan.stages:
        try:
            server = _server(stage.model.service, base_url) if stage.model.hosted else ""
            found[stage.name] = _Stage(plan, stage, found, server).identity()
        except UnknownContentError as error:
            found[stage.name] = Identity(None, why=str(error))
    return found


def _server(service: str, base_url: str | None) -> str:
    """Return the address of a service, looked for as a run does; empty for the usual one."""
    there = find_provider(service)
    if there is None:
        raise UnknownContentError(f"there is no service `{service}`")
    assigned = read_dotenv(Path.cwd() / DOTENV).values
    named = (values.get(there.url_variable, "").strip() for values in (os.environ, assigned))
    return (base_url or next(filter(None, named), None) or there.url or "").rstrip("/")


def needs_of(stage: StagePlan) -> tuple[str, ...]:
    """Return the stages whose weights a stage starts from, evaluates or asks."""
    return tuple(dict.fromkeys(filter(None, (stage.after, *needed_stages(stage)))))


def depends_on_length(stage: Training) -> bool:
    """Return whether a step is another one in a stage of more steps."""
    gradient = stage.policy_gradient
    penalty = None if gradient is None else gradient.kl
    fades = penalty is not None and penalty.final is not None
    return fades or stage.optimizer.schedule.kind != "constant"


@frozen(eq=False)
class _Stage:
    plan: Plan
    stage: StagePlan
    known: Mapping[str, Identity]  # of the stages before
    server: str

    def identity(self) -> Identity:
        stage, whole = self.stage, self._record()
        around = {"seed": self.plan.seed, "computed_by": self._computed_by()}
        if not is_training(stage):
            own = {name: part for name, part in whole.items() if name not in _EVALUATION}
            return Identity(content_hash({"stage": own, **around}))
        own = {name: part for name, part in whole.items() if name not in _TRAINING}
        own["source"] = {k: v for k, v in own["source"].items() if k != "give_up"}
        if depends_on_length(stage):
            own["steps"] = stage.steps
        played = {"": whole["source"].get("data"), "-heldout": whole.get("heldout")}
        begins = {"model": whole["model"], "after": whole["after"], "name": stage.name}
        examples = {
            part: content_hash({"data": record, "begins": self._begins(data, begins), **around})
            for data, (part, record) in zip(self._data(stage), played.items(), strict=True)
            if data is not None and data.read is None
        }
        return Identity(content_hash({"stage": own, **around}), examples)

    def _data(self, stage: Training) -> tuple[AnyData | None, AnyData | None]:
        learnt = None if stage.rollouts is not None else stage.data[0]
        return learnt, stage.heldout

    def _begins(self, data: AnyData, begins: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return what examples depend on of the model that learns from them: all of it if it plays
        them, else how it reads them."""
        if data.from_policy:
            return begins
        model = begins["model"]
        return {"name": begins["name"], **{k: model[k] for k in ("base", "renderer", "context")}}

    def _record(self) -> dict[str, Any]:
        """Return the stage's JSON, with content in place of the names of files and stages."""
        (stage,) = with_files(evolve(self.plan, stages=(self.stage,)), self._content).stages
        stage = with_each(ModelState, stage, self._state)
        stage = with_each(EndpointPlan, stage, _without_prices)
        record: dict[str, Any] = plan_to_dict(evolve(self.plan, stages=(stage,)))["stages"][0]
        record["after"] = self._after(self.stage.after)
        return record

    def _state(self, state: ModelState) -> ModelState:
        return evolve(state, after=self._after(state.after))

    def _after(self, name: str | None) -> str | None:
        """Return what stands for the weights that a stage leaves; for an evaluation, which may be
        of any of its steps, what stands for its steps."""
        if name is None:
            return None
        known = self.known[name].steps
        if known is None:
            raise UnknownContentError(f"`{name}`: {self.known[name].why}")
        if is_evaluation(self.stage) and name == self.stage.after:
            return known
        (steps,) = (one.steps for one in self.plan.trainings if one.name == name)
        return f"{known}:{steps}"

    def _content(self, path: str) -> str:
        """Return what stands for a file or folder, whatever it is called."""
        if hub_dataset(path) is not None:
            return path
        place, behind = located(path, self.plan.recipe), path[len(file_part(path)) :]
        file = file_part(place)
        if file.endswith(".py"):
            return f"code {code_digest(file, self._beside(file))}{behind}"
        if os.path.isfile(place):
            return f"file {file_digest(place)}{os.path.splitext(place)[1]}"
        if is_run_weights(place) and not self._is_plain(Path(place)):
            try:
                found = find_weights(place)
            except WeightsError as error:
                raise UnknownContentError(str(error)) from error
            local = os.path.isfile(found.place)
            return f"weights {file_digest(found.place) if local else found.place}"
        if os.path.isdir(place):
            return f"folder {folder_digest(Path(place))}"
        if matched := sorted(glob(place)):
            return f"files {digest_of(map(file_digest, matched))}"
        raise UnknownContentError(f"there is no file {place}")

    @staticmethod
    def _is_plain(folder: Path) -> bool:
        return folder.is_dir() and not (folder / JOURNAL_FILE).is_file()

    def _beside(self, file: str | None = None) -> tuple[Path, ...]:
        own = [] if file is None else [Path(file).parent]
        return (*own, Path(self.plan.recipe).parent, Path.cwd())

    def _computed_by(self) -> list[str]:
        """Return the code, packages and machine that compute the stage."""
        alone = evolve(self.plan, stages=(self.stage,))
        needed = [one for one in requirements(alone) if not one.path.endswith(".track")]
        packages = {one.name for one in needed if one.kind in ("package", "client")}
        files = {one.name for one in needed if one.kind == "file"}
        python = f"python {sys.version_info[0]}.{sys.version_info[1]}"
        found = [VERSION, rlc_digest(), python, self.server]
        found += sorted(map(package_version, packages))
        found += [] if self.stage.model.hosted else machine()
        found += sorted(self._content(path) for path in files)
        found += sorted(map(self._code, code_of_stage(self.stage)))
        found += sorted(self._named())
        given = sorted({*_texts_in("secrets", self._leaves())})
        found += [f"{name} {os.environ.get(name, '')}" for name in given]
        return found

    def _code(self, code: Code) -> str:
        """Return what code of the user's own is."""
        module = code.target.rpartition(":")[0]
        file: str | None = located(module, self.plan.recipe)
        if not module.endswith(".py"):
            try:
                file = module_file(module, [str(folder.resolve()) for folder in self._beside()])
            except DataError as error:
                raise UnknownContentError(str(error)) from error
        if file is None or {"site-packages", "dist-packages"} & {*Path(file).parts}:
            return package_version(module.partition(".")[0])
        return code_digest(file, self._beside(file))

    def _leaves(self) -> Any:
        return plan_to_dict(evolve(self.plan, stages=(self.stage,)))["stages"]

    def _named(self) -> Iterator[str]:
        """Yield the files that arguments and commands of the stage name beside all others."""
        leaves = self._leaves()
        words = {word for text in _texts(leaves) for word in (text, *text.split())}
        words = {word for word in words if "." in word or "/" in word} | {
            *_texts_in("args", leaves)
        }
        beside = self._beside()
        for _, digest in named_files(words, beside):
            yield digest
        for word in words:
            if word.endswith(".py"):
                for file in (folder / word for folder in beside):
                    if os.path.isfile(file):
                        yield code_digest(file, self._beside(str(file)))


def _without_prices(endpoint: EndpointPlan) -> EndpointPlan:
    return evolve(endpoint, prompt_price=None, reply_price=None)


def _texts_in(part: str, value: Any) -> Iterator[str]:
    """Yield the texts in all parts of this name: in ``args`` each may be a file or folder."""
    if isinstance(value, Mapping):
        for name, one in value.items():
            yield from _texts(one) if name == part else _texts_in(part, one)
    elif isinstance(value, (list, tuple)):
        for one in value:
            yield from _texts_in(part, one)


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for one in value.values():
            yield from _texts(one)
    elif isinstance(value, (list, tuple)):
        for one in value:
            yield from _texts(one)
