"""The catalogue is complete and consistent: everything else is read from it."""

from __future__ import annotations

import re
from collections import Counter
from types import SimpleNamespace

import pytest
from family_tokenizers import family_tokenizer

from rlc.catalog.builtins.wrappers import TEMPLATES
from rlc.catalog.declarations import DECLARATIONS
from rlc.catalog.facts import (
    FREE,
    TINY,
    drops_thinking,
    find_model,
    find_retired,
    model_names,
    part_cost,
    prices_as_of,
    recommended_rate,
    renderer_keeps_prefix,
    renderer_names,
    retired_models,
)
from rlc.catalog.index import BUILTINS, KINDS, find_builtin
from rlc.catalog.providers import dollars, price_of
from rlc.catalog.records import SCALARS, Builtin
from rlc.plan.parts import LOCAL, TINKER
from rlc.runtime.records import Usage

OPAQUE_TOKEN = 1


@pytest.mark.parametrize("builtin", BUILTINS, ids=lambda b: f"{b.kind}-{b.name}")
def test_every_builtin_says_what_it_is(builtin: Builtin) -> None:
    assert builtin.kind in KINDS
    assert builtin.doc
    assert not builtin.doc.endswith(".")
    assert builtin.formula or builtin.kind != "loss"
    for param in builtin.params:
        assert param.doc
        assert param.type in SCALARS or param.type in KINDS
        assert not (param.choices and param.default in (None, "") and not param.optional)


def test_a_name_means_one_thing_of_a_kind() -> None:
    assert max(Counter((builtin.kind, builtin.name) for builtin in BUILTINS).values()) == 1


def test_every_field_has_a_known_type() -> None:
    for declaration in DECLARATIONS.values():
        for field in declaration.fields:
            assert field.doc
            assert field.type in SCALARS or field.type in KINDS


def test_required_parameters_come_first() -> None:
    for builtin in BUILTINS:
        required = [param.required for param in builtin.params]
        assert required == sorted(required, reverse=True), builtin.name


def test_templates_are_those_of_the_runtime() -> None:
    from rlc.chat.prompts import load_template

    for name in TEMPLATES:
        assert "OBSERVED" in load_template(name)("OBSERVED")


def test_loss_defaults_are_those_that_the_service_documents() -> None:
    def defaults(name: str) -> list[object]:
        builtin = find_builtin("loss", name)
        assert builtin is not None
        return [param.default for param in builtin.params]

    assert defaults("ppo") == [0.8, 1.2]
    assert defaults("cispo") == [0.0, 4.0]


def test_every_hosted_model_has_a_renderer_and_an_honest_price() -> None:
    for name in model_names():
        model = find_model(name)
        assert model is not None
        assert set(model.renderers) <= set(renderer_names())
        assert name == "tiny" or model.price != FREE
        assert 0.0 not in (model.price.sample, model.price.train) or name == "tiny"


def test_cached_prefill_costs_a_fifth() -> None:
    for name in model_names():
        model = find_model(name)
        assert model is not None
        if model.price.prefill is not None and model.price.cached is not None:
            assert model.price.cached == pytest.approx(model.price.prefill / 5, rel=0.01)


def test_a_retired_model_has_a_living_replacement() -> None:
    from rlc.catalog.facts import retired_models

    for name in retired_models():
        retired = find_retired(name)
        assert retired is not None
        assert find_model(name) is None
        assert find_model(retired.use) is not None


def test_prices_have_a_date_and_a_source() -> None:
    assert re.match(r"\d{4}-\d\d-\d\d, https://", prices_as_of())


def test_an_unknown_price_is_not_a_price_of_zero() -> None:
    assert part_cost(10, None) is None
    assert part_cost(0, None) == 0.0
    lightning = price_of("nvidia/NVIDIA-Nemotron-3.5-Lightning-30B-A3B-BF16", TINKER)
    assert lightning is not None
    assert lightning.train is None
    assert dollars(lightning, Usage(prefill=1, sampled=1, trained=1)) is None
    assert dollars(lightning, Usage(prefill=1_000_000)) == pytest.approx(0.195)


def test_what_runs_here_is_free() -> None:
    used = Usage(prefill=10**9, cached=10**9, sampled=10**9, trained=10**9)
    assert dollars(price_of("tiny", LOCAL), used) == 0.0
    assert dollars(price_of("./my-model", LOCAL), used) == 0.0
    assert dollars(price_of("vendor/New", TINKER), used) is None


@pytest.mark.engine
def test_renderers_keep_the_prefix_as_the_cookbook_says() -> None:
    renderers = pytest.importorskip("tinker_cookbook.renderers")
    for name in renderer_names():
        if name.startswith(("tml_v0", "kimi_k31")):  # they need a package of their own
            assert renderer_keeps_prefix(name) is None
            continue
        renderer = renderers.get_renderer(name, StandInTokenizer(), image_processor=object())
        tokens = all(isinstance(stop, int) for stop in renderer.get_stop_sequences())
        assert renderer_keeps_prefix(name) == (renderer.has_extension_property and tokens), name


@pytest.mark.engine
@pytest.mark.parametrize("name", renderer_names())
def test_renderers_drop_thinking_as_the_cookbook_does(name: str) -> None:
    """Those of models that think, which each prompt of theirs may have them do."""
    if name.startswith(("tml_v0", "kimi_k31", "role_colon", "llama3")):
        assert not drops_thinking(name)
        return
    get_renderer = pytest.importorskip("tinker_cookbook.renderers").get_renderer
    renderer = get_renderer(name, family_tokenizer(), image_processor=object())
    thought = [{"type": "thinking", "thinking": "Hm."}, {"type": "text", "text": "4"}]
    asked = {"role": "user", "content": "?"}
    prompt = renderer.build_generation_prompt(
        [asked, {"role": "assistant", "content": thought}, asked]
    )
    shown = "Hm." in family_tokenizer().decode(prompt.to_ints())
    never = "disable" in name or "instruct" in name or name == "deepseekv3"
    assert drops_thinking(name) == (not shown and not never)


@pytest.mark.engine
def test_recommended_rates_are_those_of_the_cookbook() -> None:
    get_lr = pytest.importorskip("tinker_cookbook.hyperparam_utils").get_lr
    unknown = pytest.importorskip("tinker_cookbook.exceptions").ConfigurationError
    for name in {*model_names(), *retired_models()} - {TINY}:
        try:
            assert recommended_rate(name) == get_lr(name), name
        except NotImplementedError:
            assert recommended_rate(name) is None, name
        except unknown:  # to an older version
            assert recommended_rate(name) is None or name.startswith("Qwen/"), name
    assert recommended_rate(TINY) is None


class StandInTokenizer:
    """Every text is one token: enough to ask a renderer what it is."""

    backend_tokenizer = SimpleNamespace()  # which the cookbook copies, as of 0.6

    name_or_path = "stand-in"
    bos_token = eos_token = "<end>"

    def encode(self, text: str, **_: object) -> list[int]:
        return [OPAQUE_TOKEN]

    def convert_tokens_to_ids(self, tokens: object) -> object:
        return OPAQUE_TOKEN if isinstance(tokens, str) else [OPAQUE_TOKEN]
