"""What users state of models and their prices, and what they read anew."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from page_examples import complete

from rlc.catalog.settings import TableError, keep_table, model_at, published_models
from rlc.cli.approved_runs import _file as approval
from rlc.compile.recipe import CompileResult, load
from rlc.compile.variants import on_service, rehearse
from rlc.explanation.full import explain_dict, explain_text
from rlc.explanation.summary import summary_text
from rlc.lang import Diagnostics
from rlc.plan.codec import plan_from_dict, plan_hash, plan_to_dict
from rlc.plan.records import Plan
from rlc.pricing.cost import reference_price
from rlc.runtime.journal.database import cost
from rlc.runtime.records import Usage

Load = Callable[..., CompileResult]
QWEN = "Qwen/Qwen3-8B"
GUESS = 'env guess = gem("game:GuessTheNumber-v0-easy") |> chat()\n'


@pytest.fixture
def user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a user's configuration."""
    folder = tmp_path / "config" / "rlc"
    folder.mkdir(parents=True)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(folder.parent))
    return folder


@pytest.fixture
def read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Load:
    """Compile a recipe with these fields of its model, two folders below its project."""
    project = tmp_path / "project"
    (project / "a" / "b").mkdir(parents=True)
    monkeypatch.chdir(project)

    def read(fields: str = f'base = "{QWEN}"\nrenderer = qwen3_disable_thinking') -> CompileResult:
        text = f"model policy {{\n{fields}\n}}\ntrain main {{\n  env = sums\n  …\n}}\n"
        text += 'env sums = gem("rg:simple_equations") |> template(qwen3_general)\n'
        Path("a/b/r.rl").write_text(complete(text), encoding="utf-8")
        return load("a/b/r.rl")

    return read


def plan_of(compiled: CompileResult) -> Plan:
    errors = [item.message for item in compiled.diagnostics if item.severity == "error"]
    assert compiled.plan is not None, errors
    return compiled.plan


def state(file: Path, text: str) -> None:
    file.write_text(f'[models."{QWEN}"]\n{text}\n', encoding="utf-8")


def test_the_nearest_price_counts_and_says_where_it_is_from(user: Path, read: Load) -> None:
    state(user / "config.toml", "price = { sample = 3, train = 4 }\nas_of = 2026-07-01")
    state(Path("rlc.toml"), "price.sample = 2\nas_of = 2026-07-20\nsource = 'a bill'")
    own = 'price = { prefill = $1  as_of = "2026-07-30" }'
    plan = plan_of(read(f'base = "{QWEN}"\n{own}'))
    price = plan.stages[0].model.price
    assert price is not None
    assert (price.prefill, price.cached, price.sample, price.train) == (1, 1, 2, 4)
    assert price.as_of == "2026-07-01"
    sources = "the recipe, 2026-07-30 (prefill, cached); rlc.toml, a bill, 2026-07-20 (sample); "
    assert price.source == f"{sources}config.toml, 2026-07-01 (train)"
    used = Usage(prefill=10**6, cached=10**6, sampled=10**6, trained=10**6)
    assert cost(plan.stages[0].model, used) == 8
    assert plan.provenance["stages.main.model.price.prefill"] == "a/b/r.rl:3"
    assert explain_dict(plan, "r", Diagnostics())["cost"]["prices"] == price.source
    Path("rlc.toml").unlink()
    alone = plan_of(read()).stages[0].model.price  # completed by the catalogue
    assert alone is not None
    assert (alone.prefill, alone.sample) == (0.195, 3)
    assert "(prefill, cached)" in alone.source


def test_prices_are_kept_with_the_plan_and_change_no_hash(user: Path, read: Load) -> None:
    before = plan_of(read())
    state(Path("rlc.toml"), "price.sample = 2\nas_of = 2026-07-20")
    priced = plan_of(read())
    assert plan_hash(before) == plan_hash(priced)
    assert approval(before) != approval(priced)  # a budget is kept by the prices
    kept = plan_from_dict(json.loads(json.dumps(plan_to_dict(priced))))
    assert kept.stages[0].model.price == priced.stages[0].model.price is not None
    assert before.stages[0].model.price is None
    assert plan_to_dict(before)["stages"][0]["model"].get("price") is None
    assert rehearse(priced).stages[0].model.price is None
    assert on_service(priced, "tinker").stages[0].model.price is not None
    free = read(
        f'base = "{QWEN}"\nservice = skyrl\nprice = {{ sample = $5  as_of = "2026-07-20" }}'
    )
    assert plan_of(free).stages[0].model.price is None  # it bills nothing, whatever is stated


def test_old_prices_say_so_in_one_line(
    user: Path, read: Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = plan_of(read())
    assert "days old" not in summary_text(plan, Diagnostics()) + explain_text(plan, Diagnostics())
    monkeypatch.setenv("RLC_TODAY", "2026-10-16")
    old = "prices of 2026-07-17, more than 90 days old: `rlc models --refresh`"
    assert summary_text(plan, Diagnostics()).count(old) == 1
    assert "more than 90 days old:" in " ".join(explain_text(plan, Diagnostics()).split())
    odd = 'price = { prefill = $1  as_of = "2026-02-31" }'  # no day at all
    odd_plan = plan_of(read(f'base = "{QWEN}"\n{odd}'))
    assert "prices of 2026-02-31, more than 90 days old" in summary_text(odd_plan, Diagnostics())
    monkeypatch.setenv("RLC_TODAY", "2026-10-15")
    assert "days old" not in summary_text(plan, Diagnostics())


def test_a_model_of_a_project_needs_no_words_in_the_recipe(user: Path, read: Load) -> None:
    whole = "context = 4_096\nrenderer = 'llama3'\nas_of = '2026-07-20'\nsource = 'them'\n"
    whole += "price = { prefill = 1, sample = 2, train = 3, checkpoint = 0 }"
    Path("rlc.toml").write_text(f'[models."vendor/New"]\n{whole}\n', encoding="utf-8")
    compiled = read('base = "vendor/New"')
    model = plan_of(compiled).stages[0].model
    assert (model.service, model.context, model.renderer) == ("tinker", 4096, "llama3")
    assert "RL0107" not in {item.code for item in compiled.diagnostics}
    assert plan_of(compiled).provenance["stages.main.model.context"] == "rlc.toml"
    known = model_at("vendor/New", "a/b/r.rl")
    assert known is not None
    assert (known.price.train, known.source) == (3, "rlc.toml, them, 2026-07-20")


def test_what_is_stated_counts_on_its_own_service(user: Path, read: Load) -> None:
    Path(".rlc/providers").mkdir(parents=True)
    entry = {"context": 1000, "train": 7}
    lab = {"models": {QWEN: entry, "vendor/New": {}}}
    Path(".rlc/providers/lab.json").write_text(json.dumps(lab), encoding="utf-8")
    new = "\n[models.'vendor/New']\nservice = 'lab'\nrenderer = 'llama3'"
    own = "service = 'lab'\ncontext = 500\nprice.prefill = 5\nas_of = 2026-07-20" + new
    state(Path("rlc.toml"), own)
    state(user / "config.toml", "[models.'vendor/New']\ncontext = 3")  # of Tinker
    there = plan_of(read(f'base = "{QWEN}"\nservice = lab')).stages[0].model
    assert there.price is not None
    assert (there.context, there.price.prefill, there.price.train) == (500, 5, 7)
    assert there.price.source == "rlc.toml, 2026-07-20 (cached, prefill); lab (train)"
    here = plan_of(read())
    assert (here.stages[0].model.context, here.stages[0].model.price) == (32_768, None)
    assert here.provenance["stages.main.model.context"] == "catalogue"
    known = model_at("vendor/New", "a/b/r.rl")
    assert known is not None
    assert (known.service, known.context) == ("lab", None)


def test_a_reference_has_the_prices_that_are_stated_of_it(user: Path, read: Load) -> None:
    price = 'price = { prefill = $50  as_of = "2026-07-20" }'

    def of_reference(kl: str) -> float | None:
        text = f'model policy {{\n  base = "Qwen/Qwen3.5-4B"\n  {price}\n}}\n'
        text += f"train main {{\n  env = sums\n  kl = reference({kl}, coef = 1)\n  …\n}}\n"
        text += 'env sums = gem("rg:simple_equations") |> template(qwen3_general)\n'
        Path("r.rl").write_text(complete(text), encoding="utf-8")
        objective = plan_of(load("r.rl")).stages[0].policy_gradient
        assert objective is not None
        assert objective.kl is not None
        return reference_price(objective.kl)

    assert of_reference("policy.base") == 50
    assert of_reference('"tinker://run/weights/main"') == 50
    Path("rlc.toml").write_bytes(
        b"\xef\xbb\xbf[models.'Qwen/Qwen3.5-9B']\r\nprice.prefill = 9\r\nas_of = 2026-07-20\r\n"
    )
    assert of_reference('"Qwen/Qwen3.5-9B"') == 9


@pytest.mark.parametrize(
    ("name", "severity"),
    [
        ("Qwen/Qwen3-8b", "error"),  # misspelt
        ("Qwen3-8B", "error"),
        ("Qwen/Qwen3-9B", "warning"),  # another number is another model
        ("moonshotai/Kimi-K2.7", "warning"),
        ("vendor/New", "warning"),
    ],
)
def test_only_what_is_certainly_misspelt_is_an_error(read: Load, name: str, severity: str) -> None:
    compiled = read(f'base = "{name}"\nservice = tinker\nrenderer = llama3')
    found = [item for item in compiled.diagnostics if item.code == "RL0107"]
    assert [item.severity for item in found] == [severity]
    if compiled.plan is not None:
        Path(name).mkdir(parents=True)  # in the working directory, and not beside the recipe
        assert explain_dict(compiled.plan, "r", Diagnostics())["cost"]["total"]["high"] is None


@pytest.mark.parametrize(
    ("text", "what", "line"),
    [
        ("[models", "this cannot be read: ", 1),
        ('[models."x/y"]\nprice = 3', "`price` takes a table", 2),
        ('[models]\n"x/y" = 3', "`x/y` takes a table", 2),
        ("models = 3", "`models` takes tables of models", 1),
    ],
)
def test_a_broken_file_of_settings_is_a_finding(
    user: Path, read: Load, text: str, what: str, line: int
) -> None:
    Path("rlc.toml").write_text(text, encoding="utf-8")
    found = [item for item in read().diagnostics if item.code == "RL0170"]
    assert [item.span and item.span.line for item in found] == [line]
    assert found[0].file_name == "rlc.toml"
    assert found[0].message.startswith(what)
    Path("rlc.toml").write_bytes(b"\xff")
    assert [item.message for item in read().diagnostics if item.code == "RL0170"]


def test_what_was_read_anew_is_used_with_its_date(user: Path, read: Load) -> None:
    row = {"tinker_id": QWEN, "context": "64K", "prefill": "$1", "sample": "$2", "train": "$-1"}
    keep_table("https://a.page", published_models(json.dumps([row])))
    keep_table("a server", {"vendor/Served": {"context": 1000}, QWEN: {"context": 9}})
    known = model_at(QWEN, "")
    assert known is not None
    assert (known.context, known.price.prefill, known.price.train) == (65536, 1, 0.44)
    assert known.source.startswith("models.json, https://a.page, 2026-08-01 (cached, prefill")
    assert known.source.endswith("/models.json, 2026-07-17 (train)")
    compiled = read('base = "vendor/Served"\nrenderer = llama3')
    assert plan_of(compiled).stages[0].model.context == 1000
    state(Path("rlc.toml"), "context = 100\nprice.sample = 3\nas_of = 2026-07-20")  # is nearer
    nearer = plan_of(read()).stages[0].model
    assert nearer.context == 100
    assert nearer.price is not None
    assert (nearer.price.prefill, nearer.price.sample) == (1, 3)


@pytest.mark.parametrize("text", ["<html>", "{}", "[]", "[1]", '[{"name": "x"}]'])
def test_what_is_no_table_is_refused(text: str) -> None:
    with pytest.raises(TableError):
        published_models(text)


@pytest.mark.parametrize("text", ["", "[]", '{"x": {}}', '{"models": {"x": 1}}'])
def test_a_kept_table_that_is_broken_says_so(user: Path, read: Load, text: str) -> None:
    (user / "models.json").write_text(text, encoding="utf-8")
    (found,) = [item for item in read().diagnostics if item.code == "RL0170"]
    assert found.file_name.endswith("models.json")
    if text != '{"models": {"x": 1}}':
        with pytest.raises(TableError) as refused:
            keep_table("a page", {})
        assert "rlc models --forget" in str(refused.value.hint)
