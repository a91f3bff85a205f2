"""Rules on stages that learn from preferences, and on what a stage holds out."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from typing import Any

from rlc.catalog import (
    find_builtin,
    find_model,
    have_tasks_in_common,
    preference_losses,
    preference_traits,
    tokenizer_of,
)
from rlc.check.rules.tasks import rows_of_data
from rlc.check.rules.view import StageView, rule
from rlc.lang import Label
from rlc.plan import LabelledReplies, Pairs, PreferenceLossPlan

_ROWS_READ = 10_000  # rows whose replies are compared
_ONE_SIDED = 20.0  # times as many replies of one label as of the other, weights included
_MANY_EPOCHS = 3
_LEAST_BATCH = 4  # replies that a divergence is estimated from
_LARGEST_RATE = 2e-4  # for preferences, of a model that is not a toy
_LARGEST_MARGIN = 5.0  # of mean logprobs: gamma over beta


@rule("data", "loss", "reference")
def _data_fits_the_loss(view: StageView) -> None:
    for path in _preferences(view):
        data = view.parts[path]
        if isinstance(data, LabelledReplies) and not preference_traits(view.loss).labelled:
            label = Label(view.at("loss"), "compares two replies to one prompt")
            message = f"`{_called(view.loss)}` takes pairs, and `{data.word}()` has single replies"
            others = [f"`{name}()`" for name in preference_losses("labelled")]
            advice = f"use {' or '.join(others)}, or `pairs()`"
            view.error("RL0722", path, message, advice, label)


@rule("data", "loss", "reference")
def _ratings_are_there(view: StageView) -> None:
    names = preference_traits(view.loss).ratings
    for path in _preferences(view):
        data = view.parts[path]
        named = [column for column in data.ratings if getattr(data, column) is not None]
        if not names and not named:
            continue
        from rlc.data import rating_columns

        read = {column for name in names for column in rating_columns(data, name)}
        for column in named:
            if column not in read:
                message = f"`{column}` names a field that `{_called(view.loss)}` does not read"
                advice = "leave it out, or read it in a `preference_loss` of your own: "
                advice += f"`{'rating_margin' if column == 'margin' else column}`"
                view.error("RL0733", f"{path}.{column}", message, advice)
        if names and data.ratings and read <= {*data.ratings}:
            _check_ratings(view, path, names)


def _check_ratings(view: StageView, path: str, names: tuple[str, ...]) -> None:
    """Report rows whose ratings a loss cannot read, and those that contradict the pairs."""
    rows, data = rows_of_data(view, path), view.parts[path]
    if rows is None:
        return
    from rlc.check.rules.rows import labels
    from rlc.data import ComparisonError, compares, read_ratings

    bad, margins, count = list[tuple[ComparisonError, Any]](), list[float](), 0
    for row in rows.sound(sys.maxsize):
        if isinstance(data, Pairs) and not compares(row.fields, data):
            continue
        count += 1
        try:
            found = read_ratings(row.fields, data, names)
        except ComparisonError as wrong:
            bad.append((wrong, row))
            continue
        if {"chosen_rating", "rejected_rating"} <= found.keys():
            margins.append(found["chosen_rating"] - found["rejected_rating"])
        elif "rating_margin" in found:
            margins.append(found["rating_margin"])
    if bad:
        error, row = bad[0]
        how_many = "all" if len(bad) == count else f"{len(bad):,} of {count:,}"
        message = f'{error.what}, in {how_many} rows of "{rows.file}"'
        label = Label(view.at("loss"), f"reads {' and '.join(f'`{name}`' for name in names)}")
        view.error(
            "RL0732", f"{path}.path", message, error.hint, *labels(row.place, rows.file), label
        )
    elif (turned := sum(margin < 0 for margin in margins)) > len(margins) / 2:
        message = (
            f'in {turned:,} of {count:,} rows of "{rows.file}" the worse reply is rated higher'
        )
        advice = "the fields of the replies, or those of their ratings, may be swapped"
        view.warning("RL0734", f"{path}.path", message, advice)


@rule("model", "reference")
def _tokens_are_the_same(view: StageView) -> None:
    model = view.model
    asked = {name: getattr(view.parts[name], "model", None) for name in _preferences(view)}
    for path, state in {"reference": view.reference, **asked}.items():
        known = tokenizer_of(model.base), state and tokenizer_of(state.model.base)
        if state is None or state.model.base == model.base or None in known:
            continue
        if known[0] != known[1] and state.model.service == model.service:
            message = f"`{state.model.base}` splits text into other tokens than `{model.base}`"
            advice = "use a model with the same tokenizer"
            view.error("RL0730", path, message, advice)


@rule("loss", "reference")
def _settings_are_plausible(view: StageView) -> None:
    traits, config = preference_traits(view.loss), view.loss.config
    if view.reference is not None and not traits.reference:
        message = f"`{_called(view.loss)}` compares with no reference"
        reading = [f"`{name}()`" for name in preference_losses("reference")]
        advice = f"leave it out; {', '.join(reading)} read one"
        view.error("RL0723", "reference", message, advice)
    if traits.labelled and view.parts.get("batch", _LEAST_BATCH) < _LEAST_BATCH:
        message = f"`{_called(view.loss)}` estimates a divergence from the {view.batch} of a step"
        view.warning("RL0729", "batch", message, "16 or more make it a usable estimate")
    builtin = find_builtin("preference_loss", view.loss.name)
    if view.loss.program is not None or builtin is None:
        return
    beta, (low, high) = config["beta"], builtin.traits
    if not low <= beta <= high:
        message = f"beta = {beta:g} is far from what works with `{view.loss.name}()`"
        advice = f"mostly it is between {low:g} and {high:g}"
        view.warning("RL0724", "loss.config.beta", message, advice)
    gamma = config.get("gamma", 0.0)
    if gamma > _LARGEST_MARGIN * beta:
        message = f"a margin of gamma / beta = {gamma / beta:g} nats a token is out of reach"
        advice = "gamma is mostly 0.3 to 1.6 times beta"
        view.warning("RL0724", "loss.config.gamma", message, advice)


def _called(loss: PreferenceLossPlan) -> str:
    return loss.name if loss.program is not None else f"{loss.name}()"


@rule("model", "optimizer", "reference")
def _rate_is_plausible(view: StageView) -> None:
    rate, model = view.optimizer.learning_rate, find_model(view.model.base)
    is_known = model is not None and model.hosted  # no toy, and no folder
    if model and is_known and _LARGEST_RATE < rate <= model.learning_rates[1]:
        message = f"a learning rate of {rate:g} is high for preferences"
        advice = "LoRA mostly takes between 5e-6 and 1e-4 here; more soon forgets how to answer"
        view.warning("RL0725", "optimizer.learning_rate", message, advice)


@rule("epochs", "reference")
def _epochs_are_few(view: StageView) -> None:
    epochs = view.epochs
    if epochs is not None and epochs > _MANY_EPOCHS:
        message = f"{epochs:,} epochs over the same preferences learn them by heart"
        advice = "one to three are usual; `heldout` shows when it stops to help"
        view.warning("RL0726", "epochs", message, advice)


@rule("data", "reference")
def _replies_differ(view: StageView) -> None:
    for path in _preferences(view):
        rows = rows_of_data(view, path)
        if rows is None or not isinstance(view.parts[path], Pairs):
            continue
        from rlc.check.rules.rows import labels
        from rlc.data import repeats

        read = rows.sound(_ROWS_READ)
        same = [row for row in read if repeats(row.fields, view.parts[path])]
        if not same:
            continue
        marks = labels(same[0].place, rows.file)
        message = f'the replies of {len(same):,} of {len(read):,} rows of "{rows.file}" are equal'
        if len(same) == len(read) < _ROWS_READ:
            advice = "nothing is compared: see which fields hold the two replies"
            view.error("RL0731", f"{path}.path", message, advice, *marks)
        else:
            advice = "they say nothing and are left out"
            view.warning("RL0731", f"{path}.path", message, advice, *marks)


@rule("data", "loss", "reference")
def _labels_differ(view: StageView) -> None:
    data, rows = view.data, rows_of_data(view, "data")
    if rows is None or not isinstance(data, LabelledReplies):
        return
    from rlc.data import LabelledReply, reader_of

    read = reader_of(data)
    found = [read(row.fields) for row in rows.sound(_ROWS_READ)]
    count = Counter(one.good for one in found if isinstance(one, LabelledReply))
    if not count:
        return
    good, bad = count[True], count[False]
    if not good or not bad:
        what = "good" if good else "bad"
        message = f'all replies of "{data.path}" are labelled {what}: nothing is compared'
        view.error("RL0721", "data", message, "it takes replies of both kinds, in any proportion")
        return
    config = view.loss.config
    weights = config.get("desirable", 1.0) * good, config.get("undesirable", 1.0) * bad
    if not min(weights) or max(weights) > _ONE_SIDED * min(weights):
        message = f"{good:,} replies are good and {bad:,} are bad, and the many outweigh the few"
        name, share = ("undesirable", good / bad) if good > bad else ("desirable", bad / good)
        advice = f"`{name} = {share:.3g}` would balance them (arXiv 2402.01306, section 4)"
        view.warning("RL0721", "data", message, advice)


def _preferences(view: StageView) -> Iterator[str]:
    for name in ("data", "heldout"):
        if getattr(view.parts.get(name), "compares", False):
            yield name


@rule("heldout", "every", "steps")
def _heldout_is_compared(view: StageView) -> None:
    if view.every is None:
        return
    if view.heldout is None:
        message = "`every` sets when held-out data is compared, and there is none"
        advice = "for example `heldout = {}(…, split = last(10%))`"
        data = view.parts.get("data")
        kind = data.word if data is not None and data.read is not None else "chats"
        view.error("RL0727", "every", message, advice.format(kind))
    elif view.steps and view.every >= view.steps and not view.is_from_command_line("steps"):
        message = f"`every = {view.every}` is never due before the end, after {view.steps} steps"
        view.warning("RL0436", "every", message, "at the end they are compared anyway")


@rule("heldout")
def _heldout_is_held_out(view: StageView) -> None:
    data: Any = view.parts.get("data")
    other = view.heldout
    if other is None:
        return
    is_same = data is not None and other.read is not None and other.read == data.read
    if is_same and have_tasks_in_common(other.split or "train", data.split or "train"):
        message = "held-out data is also in the training data"
        label = Label(view.at("data"), "learnt from")
        advice = "for example `split = first(90%)` here, and `split = last(10%)` there"
        view.warning("RL0728", "heldout", message, advice, label)
    if other.read is None and not other.compares:
        message = f"`{other.word}()` plays its examples, and held-out ones are the rows of a file"
        advice = "use `chats()` or `rows()`, or an `eval` that plays the environment"
        view.error("RL0755", "heldout", message, advice)
