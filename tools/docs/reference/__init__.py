"""The reference, made from what the code says of itself: the catalogue, the pages of the codes,
the help of the commands, the schema of plans, and docstrings."""

from __future__ import annotations

from collections.abc import Mapping

from tools.docs.markdown import page
from tools.docs.reference.api import api_page
from tools.docs.reference.builtins import builtin_pages
from tools.docs.reference.codes import code_pages
from tools.docs.reference.commands import command_page
from tools.docs.reference.facts import environment_page, metric_page, model_page
from tools.docs.reference.language import declaration_page, expression_page
from tools.docs.reference.plan import plan_page


def reference_pages(guides: Mapping[str, str]) -> dict[str, str]:
    """Return the generated pages by their paths. ``guides``: the written ones, which the reference
    links where they speak of something."""
    pages = {
        "reference/declarations.md": declaration_page(),
        **builtin_pages(guides),
        "reference/expressions.md": expression_page(),
        "reference/models.md": model_page(),
        "reference/environments.md": environment_page(),
        "reference/metrics.md": metric_page(),
        "reference/commands.md": command_page(),
        **code_pages(),
        "reference/plan.md": plan_page(),
        "reference/api.md": api_page(),
    }
    return {"reference/index.md": _index(), **pages}


def _index() -> str:
    return page(
        "# Reference",
        "Made from the code of this version: what is written here is what `rlc check` knows.",
        """\
- [Declarations](declarations.md): what a recipe is made of, with every field
- [Builtins](builtins/index.md): every source, wrapper, advantage scheme, loss, optimiser, …, \
by kind
- [Expressions](expressions.md): what a recipe's own losses and rewards can read and do
- [Models](models.md): with prices, contexts and renderers
- [Environments and data](environments.md): by the names that recipes use
- [Metrics](metrics.md): every entry of `metrics.jsonl`, and what `expect` calls it
- [Commands](commands.md): what `rlc COMMAND --help` says
- [Findings](codes/index.md): every code of `rlc check`, with an example of each
- [Plan](plan.md): the JSON schema of `plan.json`
- [Python](api.md): `import rlc`
""",
    )
