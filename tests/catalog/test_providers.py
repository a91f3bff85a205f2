"""Providers: their files, what they cannot do, what they cost."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from attrs import evolve
from run_support import TINY, train

from rlc.catalog import ProviderError, find_provider, provider
from rlc.catalog.providers import listed_source, price_of, provider_names, service_of
from rlc.cli.main import main
from rlc.compile import ServiceMismatchError, on_service
from rlc.compile.recipe import compile_source
from rlc.emit.script.unsupported import misfits
from rlc.explanation import offers_dict
from rlc.lang.source import Source
from rlc.plan import LOCAL, Plan, plan_hash
from rlc.pricing import plan_cost, total_cost
from rlc.service.interface import ServiceError

LAB = {"title": "The lab", "url": "http://127.0.0.1:8000"}
HOSTED = TINY.replace('"tiny"', '"Qwen/Qwen3.5-4B"  renderer = qwen3_instruct')


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))


def write(name: str, of: object, folder: str = ".rlc/providers") -> Path:
    path = Path(folder) / f"{name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(of if isinstance(of, str) else json.dumps(of), encoding="utf-8")
    return path


def plan(text: str = HOSTED, **fields: str) -> Plan:
    compiled = compile_source(Source("recipe.rl", text + train(**fields)))
    assert compiled.plan is not None, [item.message for item in compiled.diagnostics]
    return compiled.plan


def test_each_of_rlc_says_where_it_is_from_and_what_was_tried() -> None:
    for name in provider_names():
        one = provider(name)
        assert one.name == name
        assert one.tried
        if one.hosted:
            assert one.source
            assert one.as_of
            assert one.prices or not one.bills or name == "tinker"
        assert one.blocked is None or one.tried == "read only"


def test_users_add_others_in_two_folders() -> None:
    write("lab", LAB | {"models": {"tiny": {"name": "our/tiny", "context": 4096}}})
    write("cheap", {"like": "lab", "bills": False}, "config/rlc/providers")
    write("together", {"title": "not that one"})
    names = provider_names()
    assert names[:2] == (LOCAL, "tinker")
    assert {"lab", "cheap"} < {*names}
    assert provider("together").title == "Together AI"  # a name is given once
    offered = provider("cheap").offered("tiny")
    assert offered
    assert (offered.name, offered.context) == ("our/tiny", 4096)
    assert provider("lab").offered("Qwen/Qwen3-8B") is None
    Path("deeper").mkdir()
    assert find_provider("nobody") is None
    assert service_of("local://x/weights/y") == LOCAL
    assert service_of("ftp://x") is None


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ('{\n "title" "x"\n}', r"lab.json:2:10: this is not JSON", '"title" "x"'),
        ('{"title":\n', r"lab.json:2:1: this is not JSON", ""),
        ('{"title": "x",\n "loses": []}', "lab.json:2: a provider has no `loses`", "`losses`"),
        ('{"bills": "no"}', 'lab.json:1: `bills` is true or false, found "no"', "bills anything"),
        ("[]", "lab.json:1: a provider is an object", "My lab"),
        ('{"models": {"m": {"price": 1}}}', "`models` of m has no `price`", "prefill"),
        ('{"models": {\n"m": {"train": -1}}}', "lab.json:2: `train` in .* is -1, and no", ""),
        ('{"models": {"m": {"train": NaN}}}', "`train` in .* is nan, and no number from 0", ""),
        ('{"prices": {"as_of": "today"}}', "`as_of` in `prices` is a day", ""),
        ('{"losses": [3]}', r"`losses` is a list of names, found \[3\]", ""),
        ('{"only": {"a": []}}', r"`only` of a is an object, found \[\]", "values"),
        ('{"only": {"a": {"values": []}}}', "`values` in `only` of a is empty", ""),
        ('{"only": {"a": {"why": "x"}}}', "`only` of a has no `values`", "bound to"),
        ('{"arguments": {"sample": 3}}', "`arguments` of sample is an object, found 3", ""),
        ('{"samples": "old"}', "`samples` is `newest`", ""),
        ('{"scheme": "lab"}', "`scheme` is not like `lab://`", ""),
        ('{"module": "lab"}', "`module` needs the `package`", ""),
        ('{"like": "nobody"}', "no provider `nobody` to be like", "tinker"),
        ('{"like": "lab"}', "no provider `lab` to be like", "tinker"),
    ],
)
def test_a_mistake_in_a_file_is_named_with_its_line(text: str, message: str, hint: str) -> None:
    write("lab", text)
    with pytest.raises(ProviderError, match=message) as refused:
        provider("lab")
    assert hint in (refused.value.hint or "")


def test_null_leaves_a_field_out() -> None:
    names = dict.fromkeys(("title", "bills", "only", "prices", "arguments", "scheme", "losses"))
    write("lab", "\ufeff" + json.dumps(names))  # with the mark that some editors put first
    lab = provider("lab")
    assert (lab.title, lab.bills, lab.scheme, lab.storage) == ("lab", True, "tinker://", None)
    assert total_cost(plan_cost(on_service(plan(), "lab")), "high").total is None


def test_what_is_like_tinker_has_neither_its_prices_nor_its_credentials() -> None:
    from rlc.service.hosted.endpoint import find_endpoint

    write("lab", {"like": "tinker", "title": "The lab", "url": "http://a.lab", "key": "LAB_KEY"})
    assert price_of("Qwen/Qwen3.5-4B", "lab") is None
    assert provider("lab").storage is None
    assert plan(HOSTED.replace("  renderer", "  service = lab  renderer")).stages[0].model.hosted
    credentials = {"TINKER_API_KEY": "tml-x", "TINKER_CREDENTIAL_CMD": "echo tml-y"}
    with pytest.raises(ServiceError, match="The lab service needs LAB_KEY"):
        find_endpoint(None, credentials, service="lab")


def test_an_unknown_provider_is_named_with_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    Path("recipe.rl").write_text(HOSTED + train(), encoding="utf-8")
    assert main(["explain", "recipe.rl", "--service", "togehter"]) == 2
    assert "there is no service `togehter`\n  help: did you mean `together`?" in (
        capsys.readouterr().err
    )


@pytest.mark.parametrize(
    ("limits", "fields", "message", "instead"),
    [
        ({"losses": ["ppo"]}, {"loss": "cispo()"}, "has no loss `cispo`", "`ppo`"),
        ({"losses": ["cispo"]}, {"loss": "cispo()"}, "", ""),
        ({"only": {"optimizer.grad_clip_norm": {"values": [0.0], "why": "it is ignored"}}},
         {"optimizer": "adam(1e-3, grad_clip_norm = 1)"}, "it is ignored",
         "write `grad_clip_norm = 0`"),
        ({"samples": "newest"}, {"kl": "reference(policy.base, coef = 1)"}, "newest weights", "kl"),
        ({"samples": "newest"}, {"overlap": "asynchronous(max_staleness = 2)", "loss": "ppo()"},
         "newest weights", "`overlap`"),
        ({"models": {"Qwen/Qwen3.5-9B": {}}}, {}, "has no model", "`Qwen/Qwen3.5-9B`"),
        ({"models": {"Qwen/Qwen3.5-4B": {"max_rank": 2}}}, {}, "rank of at most 2", "use 2"),
        ({"blocked": "it is closed"}, {}, "it is closed", ""),
    ],
)  # fmt: skip
def test_what_it_cannot_do_is_refused_with_what_to_write(
    limits: dict[str, object], fields: dict[str, str], message: str, instead: str
) -> None:
    write("lab", LAB | limits)
    job = plan(**fields)
    if not message:
        assert on_service(job, "lab").stages[0].model.service == "lab"
        return
    with pytest.raises(ServiceMismatchError, match=message) as refused:
        on_service(job, "lab")
    assert instead in (refused.value.hint or "")


def test_states_of_another_service_stay_there() -> None:
    write("lab", LAB | {"scheme": "lab://"})
    saved = HOSTED.replace("lora_rank", 'weights = "tinker://run/weights/main"  lora_rank')
    with pytest.raises(ServiceMismatchError, match="is on the service `tinker`, and not on `lab`"):
        on_service(plan(saved), "lab")


def test_it_takes_no_losses_of_a_recipe() -> None:
    write("lab", LAB | {"custom_losses": False})
    own = "loss mine { token = -logp * clip(ratio, 0, 2) * adv * adv }\n"
    with pytest.raises(ServiceMismatchError, match="no losses of a recipe's own"):
        on_service(plan(HOSTED + own, loss="mine"), "lab")


def test_its_context_counts_wherever_it_is_named() -> None:
    write("lab", LAB | {"models": {"Qwen/Qwen3.5-4B": {"context": 3000}}})
    named = plan(HOSTED.replace("  renderer", "  service = lab  renderer"))
    moved = on_service(plan(), "lab")
    assert moved.stages[0].model.context == named.stages[0].model.context == 3000
    assert moved.provenance["stages.main.model.context"] == "--service"
    assert plan_hash(moved) == plan_hash(named)


def test_its_prices_count_and_are_in_no_hash() -> None:
    prices = {"prefill": 1.0, "cached": 0.1, "sample": 2.0, "train": 3.0}
    own = LAB | {"prices": {"storage": 0.0}}
    write("dear", own | {"models": {"Qwen/Qwen3.5-4B": prices}})
    write("half", own | {"models": {"Qwen/Qwen3.5-4B": {k: v / 2 for k, v in prices.items()}}})
    write("dark", own | {"models": {"Qwen/Qwen3.5-4B": {}}})
    job = plan()
    cost = {n: total_cost(plan_cost(on_service(job, n)), "high") for n in ("dear", "half", "dark")}
    assert cost["dear"].total == pytest.approx(2 * (cost["half"].total or 0)) != 0
    assert cost["dark"].total is None
    assert listed_source("Qwen/Qwen3.5-4B", "gone") == ("", None)  # nor is its day Tinker's
    assert price_of("Qwen/Qwen3.5-4B", "dark") is None
    moved = on_service(job, "half")
    renamed = evolve(
        moved, stages=tuple(evolve(s, model=evolve(s.model, service="dear")) for s in moved.stages)
    )
    assert plan_hash(renamed) == plan_hash(on_service(job, "dear"))
    found = {one["service"]: one for one in offers_dict(job)["services"]}
    assert found["dear"]["total"]["high"] == cost["dear"].total
    assert found["dear"]["stages"][0]["total"]["high"] == cost["dear"].total
    assert found["tinker"]["runs"]
    assert not found[LOCAL]["runs"]
    assert "tinker" in found["baseten"]["why"]


def test_a_script_talks_to_tinker_alone() -> None:
    write("lab", LAB)
    (found,) = misfits(on_service(plan(), "lab"))
    assert "a script talks to Tinker, and not to `lab`" in found.message


def test_a_teacher_of_several_tokens_needs_a_service_that_has_them() -> None:
    write("lab", LAB | {"soft_targets": False})
    taught = {"teacher": "forward_kl(policy, top_k = 4)"}
    with pytest.raises(ServiceMismatchError, match="most likely tokens of a teacher"):
        on_service(plan(**taught), "lab")
