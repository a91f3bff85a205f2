"""What the page asks of rlc: JSON in, JSON out. It runs in the page's worker, in Pyodide.

A request has the ``text`` of a recipe and what is wanted of it, or a ``code`` whose page is wanted.
Offsets count UTF-16 units, as JavaScript does.

The user's files are not there: an empty one stands in for each that a recipe names below the
working directory, so that the recipe has a plan. Nothing of them is read, and the page says so.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import suppress
from functools import lru_cache
from typing import Any

from rlc.api import Explanation
from rlc.catalog.environments import code_of, paths_in
from rlc.catalog.plan_files import plan_to_file
from rlc.compile.recipe import CompileResult, compile_source
from rlc.lang.diagnostics import Diagnostic, Fix, in_order
from rlc.lang.fixes import fix_all
from rlc.lang.formatter import format_text
from rlc.lang.pages import page, render_page
from rlc.lang.render import excerpt, summary
from rlc.lang.secrets import keys_in
from rlc.lang.source import Source
from rlc.lang.syntax import parse
from rlc.lang.words import string_value
from rlc.plan.paths import file_part
from rlc.plan.records import Plan

NAME = "recipe.rl"
NO_FILE = "RL0001"


def answer(request: str) -> str:
    """Answer a request.

    That for a text has its ``findings``, how many they are (``counts``), the files and functions
    that rlc would read elsewhere (``unread``), whether a key stands in it (``secret``) and the
    ``result`` that is wanted: the text of ``"summary"``, ``"full"``, ``"plan"``, ``"formatted"`` or
    ``"fixed"``, None if the recipe's errors prevent it, and for ``"check"``.
    """
    asked = json.loads(request)
    if "code" in asked:
        about = page(asked["code"])
        return json.dumps({"result": about and render_page(about, color=True)})
    # A half of a character, which JavaScript can have, is none.
    text = asked["text"].encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    source, compiled = _compiled(text)
    found = in_order(compiled.diagnostics)
    said = {
        "findings": [_finding(item, found, source) for item in found],
        "counts": summary(found),
        "unread": sorted(set(_unread(compiled.plan))) if compiled.plan else [],
        "secret": bool(keys_in(source)) or any(item.hides for item in found),
        "result": _result(asked["want"], source, compiled),
    }
    return json.dumps(said)


@lru_cache(maxsize=1)  # a tab wants more of the text that was checked
def _compiled(text: str) -> tuple[Source, CompileResult]:
    source = Source(NAME, text)
    compiled = compile_source(source)
    if stand_ins := [item.span for item in compiled.diagnostics if item.code == NO_FILE]:
        for span in stand_ins:
            named = file_part(string_value(span.text)) if span else os.pardir
            path = os.path.normpath(named)
            with suppress(OSError):  # a file in place of a folder: the finding stands
                if not path.startswith((os.sep, os.pardir)):
                    os.makedirs(os.path.dirname(path) or os.curdir, exist_ok=True)
                    open(path, "a", encoding="utf-8").close()
        compiled = compile_source(source)
    return source, compiled


def _result(want: str, source: Source, compiled: CompileResult) -> str | None:
    if want == "formatted":
        recipe, found = parse(source)
        return None if found.has_errors else format_text(source, recipe)
    if want == "fixed":
        return fix_all(source, lambda text: compile_source(text).diagnostics).source.text
    if compiled.plan is None or want == "check":
        return None
    if want == "plan":
        return json.dumps(plan_to_file(compiled.plan, ""), indent=2, ensure_ascii=False)
    explanation = Explanation(NAME, compiled.plan, compiled.diagnostics, sweeps=compiled.sweeps)
    return explanation.text(color=True, full=want == "full")


def _unread(plan: Plan) -> Iterator[str]:
    """The files and the Python code that a plan names."""
    yield from (path for path in paths_in(plan) if path != os.curdir)
    for stage in plan.stages:
        for env in stage.environments:
            yield from (code.target for _, code in code_of(env))


def _finding(item: Diagnostic, found: list[Diagnostic], source: Source) -> dict[str, Any]:
    here = item.span if item.span and item.span.source is source else None
    return {
        "code": item.code,
        "severity": item.severity.value,
        "message": item.message,
        "help": item.help,
        "excerpt": excerpt(item, found, color=True),
        "line": here and here.line,
        "start": here and _units(source, here.start),
        "end": here and _units(source, here.end),
        "fix": _fix(item.fix, source) if item.fix else None,
    }


def _fix(fix: Fix, source: Source) -> dict[str, Any] | None:
    """A fix as edits of the text; None if it is one of a file that the text imports."""
    if any(span.source is not source for span, _ in fix.edits):
        return None
    edits = [
        {"start": _units(source, span.start), "end": _units(source, span.end), "text": text}
        for span, text in sorted(fix.edits, key=lambda edit: edit[0].start)
    ]
    return {"title": fix.title, "safe": fix.safe, "edits": edits}


def _units(source: Source, offset: int) -> int:
    return len(source.text[:offset].encode("utf-16-le")) // 2
