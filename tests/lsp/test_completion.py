"""What is proposed while one types."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lsprotocol import types
from paths import RECIPES

from rlc.compile.recipe import load
from rlc.lang.source import Source
from rlc.lsp.completion import complete, resolved
from rlc.lsp.documents import Document, Documents
from rlc.lsp.protocol import Positions

MARK = "¦"
LIBRARY = """
param rate: float = 1e-4
model policy { base = "tiny" }
env spell = gem("rg:spell_backward") |> chat()
env digits(size: int = 3) = python("digits.py:make", args = { size = size })
"""


def proposals(
    marked: str, snippets: bool = False, name: str = "a.rl"
) -> list[types.CompletionItem]:
    """What is proposed at the mark, in a text that goes on behind it."""
    before, _, after = marked.partition(MARK)
    document = Document(Source(name, before + after))
    positions = Positions(document.source)
    return complete(Documents(), document, len(before), positions, snippets)


def labels(marked: str) -> list[str]:
    return [item.label for item in proposals(marked)]


def test_a_declaration_starts_with_a_kind() -> None:
    for text in ("¦", "# a comment\n¦", 'import "a.rl"\n¦', LIBRARY + "tr¦"):
        assert {"train", "model", "import", "expect"} <= set(labels(text))
    assert labels("# a comm¦") == []
    assert labels("model ¦") == []  # a name of one's own


def test_the_parts_of_a_price_are_those_that_are_not_there_yet() -> None:
    found = labels('model policy {\n  base = "a/b"\n  price = { sample = $1  ¦ }\n}')
    assert found == ["prefill", "train", "cached", "checkpoint", "as_of"]


def test_fields_that_are_not_there_yet_come_with_those_needed_first() -> None:
    found = labels("train main {\n  model = policy\n  ¦\n")
    assert found[:4] == ["env", "batch", "sampling", "advantage"]
    assert "model" not in found
    assert "budget" in found
    amended = labels(LIBRARY + "model big = policy {\n  ¦")
    assert "lora_rank" in amended


@pytest.mark.parametrize(
    ("text", "has", "lacks"),
    [
        ("train main { loss = ¦", {"ppo", "cispo"}, {"grpo", "adam"}),
        ("train main { advantage = ¦", {"grpo", "verl.grpo"}, {"ppo"}),
        ("train main { advantage = verl.¦", {"verl.grpo"}, {"trl.grpo"}),
        ("train main { model = ¦", {"policy"}, {"spell", "adam"}),
        ("train main { env = ¦", {"spell", "digits", "gem"}, {"policy", "chat"}),
        ("train main { env = 2 * spell + ¦", {"spell", "gem"}, {"chat"}),
        ('env x = gem("rg:spell_backward") |> ¦', {"chat", "concat"}, {"gem"}),
        ("train main { overlap = ¦", {"synchronous", "streamed"}, set()),
        ("train main { optimizer = adam(¦", {"learning_rate", "rate"}, {"policy"}),
        ("train main { optimizer = adam(1e-4, ¦", {"schedule"}, {"learning_rate"}),
        ("train main { optimizer = adam(1e-4, schedule = ¦", {"cosine"}, {"adam"}),
        ("train main { optimizer.¦", {"learning_rate"}, {"batch"}),
        ("train main { on_error = ¦", {"retry", "drop"}, set()),
        ("train main { on_error = retry(3) then ¦", {"drop"}, set()),
        ("train main { kl = reference(policy.¦", {"base", "lora_rank"}, {"coef"}),
        ("model m { train_mlp = ¦", {"true", "false"}, {"none"}),
        ("model m { base = ¦", {"tiny", "policy"}, {"spell"}),
        ('model m { base = "¦', {"tiny", "Qwen/Qwen3.5-4B"}, {"policy"}),
        ('env x = gem("¦', {"game:Sudoku-v0-easy"}, {"tiny"}),
        ('env x = gem("game:Sudoku-v0-easy", ¦', {"clues"}, {"id"}),
        ("env x = digits(¦", {"size"}, set()),
        ("param x: ¦", {"int", "float", "word"}, {"1"}),
        ("param x: int(¦", {"low", "below"}, set()),
        ("loss mine(tau = 1.0) { a = 2 * tau  token = ¦", {"a", "tau", "adv", "exp"}, {"token"}),
        ("preference_loss mine(b = 0.1) { a = b * ¦", {"b", "chosen", "softplus"}, {"adv", "a"}),
        ("advantage a { episode = ¦", {"reward", "mean", "running"}, {"total", "logp", "stop"}),
        ("env e = spell |> reward(¦", {"total", "mean", "rank", "reduce"}, {"logp", "running"}),
        ("env e = spell |> reward(total - mean(¦", {"tokens", "where"}, {"adv", "batch_mean"}),
        ("sweep s { of = main  over = { ¦", {"rate", "policy"}, set()),
        ("sweep s { of = main  over = { policy.¦", {"lora_rank"}, set()),
        ("sweep s { of = main }\nclaim c { of = ¦", {"s"}, {"policy"}),
        ("sweep s { over = { rate = [1e-3, 1e-4] } }\nclaim c { of = s  that = ¦", {"at"}, {"s"}),
        (
            "sweep s { over = { rate = [1e-3, 1e-4] } }\nclaim c { of = s  that = at(¦",
            {"rate == 1e-3", "rate == 1e-4"},
            {"policy"},
        ),
        ("expect ¦", {"job"}, set()),
        ("sweep s { metric = ¦", set(), {"job"}),
        ("eval e { tasks = 1 }\nsweep s { metric = e.¦", set(), {"cost.high"}),
        ('model m { renderer = "¦', {"qwen3_instruct"}, {"rate"}),
        ("env e(size: int, most: int = ¦", {"size"}, {"most"}),
        ("expect job.¦", {"cost.high"}, {"lora_rank"}),
        ("train main { steps = 10 ¦", {"optimizer"}, {"steps"}),
        ("train main { metrics = [¦", set(), {"policy"}),
        ("eval e { metrics = [pass_at(1), ¦", {"mean_reward"}, {"policy"}),
        ("sampling greedy = ¦", {"sample"}, {"greedy"}),
    ],
)
def test_what_fits_is_proposed(text: str, has: set[str], lacks: set[str]) -> None:
    found = set(labels(LIBRARY + text))
    assert has <= found
    assert not lacks & found


def test_the_text_behind_the_cursor_does_not_matter() -> None:
    for behind in ("", "\n}", ' ) } "', "\nenv spell2 = gem()"):
        assert "cispo" in labels(f"train main {{\n  loss = ¦{behind}")


def test_models_come_with_their_prices() -> None:
    (item,) = (i for i in proposals('model m { base = "¦') if i.label == "Qwen/Qwen3.5-4B")
    assert "per million tokens" in str(item.detail)
    assert isinstance(item.documentation, types.MarkupContent)
    assert "LoRA" in item.documentation.value


def test_snippets_put_the_cursor_where_one_goes_on() -> None:
    (item,) = (i for i in proposals("train main { loss = pp¦", snippets=True) if i.label == "ppo")
    assert isinstance(item.text_edit, types.TextEdit)
    assert item.text_edit.new_text == "ppo($0)"
    assert item.text_edit.range == types.Range(types.Position(0, 20), types.Position(0, 22))
    (plain,) = (i for i in proposals("train main { loss = pp¦") if i.label == "ppo")
    assert isinstance(plain.text_edit, types.TextEdit)
    assert plain.text_edit.new_text == "ppo()"
    assert "clip" in str(resolved(plain).documentation)
    (rank,) = (
        i for i in proposals("env e = spell |> reward(ran¦", snippets=True) if i.label == "rank"
    )
    assert isinstance(rank.text_edit, types.TextEdit)
    assert rank.text_edit.new_text == "rank($0, over = group)"


def test_files_are_proposed_where_one_is_named(tmp_path: Path) -> None:
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "models.rl").touch()
    (tmp_path / "rows.jsonl").touch()
    (tmp_path / "rewards.py").touch()
    name = str(tmp_path / "a.rl")

    def found(text: str) -> list[str]:
        return [item.label for item in proposals(text, name=name)]

    assert found('import "¦') == ["lib/"]
    assert found('import "lib/¦') == ["models.rl"]
    assert "rows.jsonl" in found('env x = rows("¦')
    assert found('env x = rows("rows.jsonl", grader = grade_with("¦') == ["lib/", "rewards.py"]


def test_what_is_measured_is_proposed_once_there_was_a_plan() -> None:
    path = RECIPES / "learning_rates.rl"
    plan = load(path).plan
    assert plan is not None
    text = f"{path.read_text('utf-8')}\nexpect heldout."
    document = Document(Source(str(path), text))
    stages = {stage.name: stage for stage in plan.stages}
    positions = Positions(document.source)
    found = complete(Documents(), document, len(text), positions, False, stages)
    assert {"pass_at_1", "mean_reward", "cost.high"} <= {item.label for item in found}


@pytest.mark.parametrize(
    "recipe",
    [
        *("sudoku", "two_stages", "lib/guessing", "own_loss", "distillation", "judged"),
        *("debate", "preferences", "expert_iteration", "solver_judge"),
    ],
)
def test_whatever_a_recipe_says_is_proposed_there(recipe: str) -> None:
    documents = Documents()
    document = documents.get(str(RECIPES / f"{recipe}.rl"))
    assert document is not None
    positions = Positions(document.source)
    text, looked_at = document.source.text, 0
    for word in documents.notes(document)[0]:
        written = text[word.start : word.end]
        known = word.role in ("kind", "type", "field", "argument", "builtin", "word", "input")
        start = word.start
        if word.role == "reference":
            known = word.what is not None
        elif word.role == "literal" and written[:1] == '"' and word.want is not None:
            start, written = start + 1, written[1:-1]
            known = written in (*word.want.all_choices(), *(word.want.suggests or tuple)())
        if known:
            looked_at += 1
            found = {item.label for item in complete(documents, document, start, positions)}
            parts = {part for label in found for part in label.split(".")}
            assert written in found | parts, document.source.position(start)
    assert looked_at > 15


@given(st.data())
def test_any_text_has_an_answer(data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(["debate", "lib/losses", "learning_rates", "judged"]))
    text = (RECIPES / f"{name}.rl").read_text("utf-8")
    start, end = sorted(data.draw(st.tuples(*[st.integers(0, len(text))] * 2)))
    junk = data.draw(st.text('{}()[]"=|>,.#\n ax1$', max_size=6))
    text = text[:start] + junk + (text[end:] if data.draw(st.booleans()) else text[start:])
    offset = data.draw(st.integers(0, len(text)))
    document = Document(Source("a.rl", text))
    complete(Documents(), document, offset, Positions(document.source))
