"""Everything that is done with the text of a recipe, and what has to be true of it."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from copy import copy
from functools import partial
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any

from attrs import define, evolve, field
from lsprotocol import types

from rlc import Explanation
from rlc.catalog import plan_from_file, plan_to_file
from rlc.compile.recipe import CompileResult, compile_source
from rlc.compile.variants import on_service, rehearse
from rlc.data import Reader
from rlc.emit.job.folder import emit_job
from rlc.emit.script.program import script
from rlc.errors import Error
from rlc.explanation import diff_dict, diff_plans, diff_text
from rlc.lang import (
    BlockDecl,
    Decl,
    Diagnostics,
    Severity,
    Source,
    fix_all,
    format_text,
    read_source,
    render_github,
    render_json,
    render_sarif,
)
from rlc.lang.render import render_human
from rlc.lang.syntax import parse
from rlc.lsp import documents as lsp
from rlc.lsp import protocol
from rlc.lsp.completion import complete, resolved, signature_help
from rlc.lsp.describe import hover
from rlc.plan import Plan, PlanFormatError, plan_hash

WAYS = ("check", "explain", "fmt", "fix", "saved", "variants", "set", "emit", "editor")
SET = ("1", "0", "none", "-1", "", '"x"', "{", "1e308", "main", "[1", "adam(1)", "é", '"\udcff"')


@define
class Trial:
    """A text on its way; ``way`` is where it is, ``random`` chooses places and overrides."""

    source: Source
    random: Random
    whole: bool = False  # whether a job is written too, which takes a second
    way: str = ""
    compiled: CompileResult = field(factory=lambda: CompileResult(None, Diagnostics()))

    def run(self) -> None:
        """Go all the ways. Any exception is a mistake of rlc."""
        for self.way in WAYS:
            getattr(self, f"_{self.way}")()

    @property
    def decls(self) -> tuple[Decl, ...]:
        return parse(self.source)[0].decls

    def compile(self, source: Source, overrides: Sequence[str] = ()) -> CompileResult:
        """Compile a text in place of the file of its name, with its data."""

        def read(path: str) -> tuple[Source | None, Diagnostics]:
            here = os.path.normpath(path) == os.path.normpath(source.name)
            return (source, Diagnostics()) if here else read_source(path)

        return compile_source(source, overrides, reader=Reader(), read=read)

    def check(self, source: Source) -> Diagnostics:
        return self.compile(source).diagnostics

    def _check(self) -> None:
        self.compiled = self.compile(self.source)
        found, plan = self.compiled.diagnostics, self.compiled.plan
        nothing_to_run = any(item.code == "RL0301" for item in found)
        # A file of declarations with parameters is there to be imported.
        nothing_to_run |= any(
            hasattr(d, "parameters") and d.parameters is not None for d in self.decls
        )
        assert plan is not None or found.has_errors or nothing_to_run, "a plan or errors"
        assert plan is None or not found.has_errors, "no plan with errors"
        assert all(item.span is not None or item.file for item in found), "a finding has a place"
        for write in (render_github, render_json, partial(render_sarif, version="1")):
            write(found)
        render_human(found, color=True)

    def _explain(self) -> None:
        compiled = self.compiled
        explanation = Explanation(
            self.source.name, compiled.plan, compiled.diagnostics, sweeps=compiled.sweeps
        )
        explanation.text()
        explanation.text(full=True)
        json.dumps(explanation.to_dict())
        if compiled.plan is not None:
            explanation.graph("dot")
            explanation._repr_html_()

    def _fmt(self) -> None:
        recipe, problems = parse(self.source)
        if problems.has_errors:
            return
        text = format_text(self.source, recipe)
        again, found = parse(formatted := Source(self.source.name, text))
        assert not found.has_errors, "what fmt writes has no mistakes"
        assert again == recipe, "fmt keeps the tree"
        assert format_text(formatted, again) == text, "fmt comes to an end"

    def _fix(self) -> None:
        before = self.compiled
        if all(item.fix is None for item in before.diagnostics):
            return
        fixed = fix_all(self.source, self.check)
        assert _errors(fixed.remaining) <= _errors(before.diagnostics), "fixes make nothing worse"
        again = fix_all(fixed.source, self.check)
        assert again.source.text == fixed.source.text, "fixes come to an end"
        if before.plan is not None:
            after = self.compile(fixed.source).plan
            assert after is not None, "a fix keeps the plan"
            assert plan_hash(after) == plan_hash(before.plan), "a fix keeps the hash"

    def _saved(self) -> None:
        if (plan := self.compiled.plan) is None:
            return
        with tempfile.TemporaryDirectory() as folder:
            data = json.loads(json.dumps(plan_to_file(plan, folder), ensure_ascii=False))
            again, intact = plan_from_file(data, folder)
        assert intact, "a saved plan has its hash"
        again = evolve(again, recipe=plan.recipe)
        assert again == plan, "a saved plan is the plan"
        assert again.provenance == plan.provenance, "a saved plan has its origins"
        assert plan_hash(again) == plan_hash(plan), "a saved plan has the hash of the plan"
        assert _explained(again) == _explained(plan), "a saved plan is explained alike"
        for _ in range(5):
            with suppress(PlanFormatError):
                plan_from_file(_damaged(data, self.random), "")

    def _variants(self) -> None:
        if (plan := self.compiled.plan) is None:
            return
        small = rehearse(plan)
        _explained(small)
        diff = diff_plans(plan, small, ((), ()))
        diff_text(diff, "a", "b")
        json.dumps(diff_dict(diff, "a", "b"))
        for sweep in self.compiled.sweeps:
            for configuration in islice(sweep.configurations(), 2):
                _explained(sweep.plan_of(configuration, sweep.seed))
        for service in ("tinker", "local"):
            with suppress(Error):  # an answer
                _explained(on_service(plan, service))

    def _set(self) -> None:
        blocks = [decl for decl in self.decls if isinstance(decl, BlockDecl)]
        names = [f"{block.name.id}.{one.name.id}" for block in blocks for one in block.fields]
        for name in self.random.sample(names, min(2, len(names))):
            override = f"{name}={self.random.choice(SET)}"
            render_human(self.compile(self.source, [override]).diagnostics, color=False)

    def _emit(self) -> None:
        if (plan := self.compiled.plan) is None:
            return
        with suppress(Error):
            compile(script(plan), "train.py", "exec")
        options = {"overrides": (), "seed": None, "rehearse": False, "service": None}
        if self.whole:
            with tempfile.TemporaryDirectory() as folder, suppress(Error):
                emit_job(self.compiled, Path(folder) / "job", options)

    def _editor(self) -> None:
        texts = lsp.Documents()
        document = texts.put(self.source.name, self.source.text, 1)
        checked = protocol.check(texts, document)
        plan, found = checked.compiled.plan, checked.compiled.diagnostics
        encoding = self.random.choice(["utf-8", "utf-16", "utf-32"])
        positions, size = protocol.Positions(document.source, encoding), len(document.source.text)
        stages = {stage.name: stage for stage in plan.stages} if plan is not None else {}
        for offset in (self.random.randint(0, size) for _ in range(6)):
            assert positions.offset(positions.at(offset)) == offset, "a position is an offset"
            for item in complete(texts, document, offset, positions, True, stages)[:1]:
                resolved(item)
            signature_help(texts, document, offset)
            lsp.definition(texts, document, offset)
            if (at := lsp.note_at(texts, document, offset)) is not None:
                hover(at, document.source.text[at.start : at.end], document.path)
            if (name := lsp.name_at(texts, document, offset)) is not None:
                lsp.uses(texts, document, name)
                lsp.why_not(texts, document, name, "other")
        notes, text = texts.notes(document), document.source.text
        protocol.inlay_hints(text, *notes, plan, checked.costs, positions, 0, size)
        protocol.document_symbols(document, positions)
        protocol.semantic_tokens(notes[0], positions)
        protocol.format_edits(document.source, encoding)
        [*protocol.fix_actions(found, document, positions.range(0, size), encoding)]
        for finding in found:
            protocol.as_diagnostic(finding, encoding)
        for line in (10**9, 0):
            positions.offset(types.Position(line, 10**9))


def _errors(found: Diagnostics) -> int:
    return sum(item.severity is Severity.ERROR for item in found)


def _explained(plan: Plan) -> str:
    return Explanation(plan.recipe, plan, Diagnostics()).text(full=True)


def _damaged(data: Any, random: Random) -> Any:
    """Return a plan's JSON with another value somewhere, or without one."""
    if isinstance(data, dict | list) and data and random.random() < 0.9:
        data = copy(data)
        key = random.choice([*data] if isinstance(data, dict) else range(len(data)))
        if random.random() < 0.1:
            del data[key]
        else:
            data[key] = _damaged(data[key], random)
        return data
    others: tuple[Any, ...] = (
        None,
        True,
        0,
        -1,
        10**400,
        1.5,
        float("nan"),
        "",
        "main",
        "\0",
        [],
        {},
        [[]],
        {"kind": 1},
    )
    return random.choice(others)
