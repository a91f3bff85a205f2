"""The page about providers shows what their files say."""

from __future__ import annotations

from paths import ROOT

from rlc.catalog.providers import CATALOGUE, Provider, fields, provider

PAGE = (ROOT / "docs" / "providers.md").read_text(encoding="utf-8")
BUILT_IN = sorted((ROOT / "rlc" / "catalog" / "data" / "providers").glob("*.json"))


def row(one: Provider) -> str:
    client = f"`{one.module}` of {one.package}" if one.module else "the SDK"
    models = str(len(one.model_names)) if one.model_names else "its server's"
    known = one.models == CATALOGUE
    cells = (
        f"`{one.name}`",
        client,
        f"`{one.key}`" if one.key else "none",
        "the catalogue's" if known else models,
        ", ".join(one.losses) if one.losses else "all",
        f"the {one.samples}" if one.samples else "any weights",
        "dated, in the catalogue" if known else one.priced,
        one.tried,
    )
    return f"| {' | '.join(cells)} |"


def test_it_has_a_row_for_each_file_and_a_line_for_each_field() -> None:
    for path in BUILT_IN:
        assert f"\n{row(provider(path.stem))}\n" in PAGE
    for name, (_, doc) in fields().items():
        assert f"\n| `{name}` | {doc} |\n" in PAGE
