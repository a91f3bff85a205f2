"""Every finding of the checker, as a user reads it: one recipe for each code."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from audits_here import audit_here
from golden import check_golden

from rlc.compile.recipe import CompileResult, compile_source
from rlc.data.reading import Reader
from rlc.emit.errors import EmitError
from rlc.emit.job.folder import emit_job
from rlc.emit.script.program import script
from rlc.lang.codes import code_titles
from rlc.lang.render import render_human
from rlc.lang.source import Source
from rlc.proof import audit
from rlc.proof.recipe_tests import run_recipe_tests

CASES = sorted(Path(__file__).with_name("cases").glob("RL*.rl"))
TESTED = ("RL0855", "RL0856")  # found by `rlc test`, which makes prompts as a run does


def _marked(path: Path) -> Any:
    """Return a case, marked as one that plays episodes if an audit or a test finds it."""
    plays = path.stem in TESTED or "rlc audit" in path.read_text(encoding="utf-8")
    return pytest.param(path, id=path.stem, marks=[pytest.mark.plain] if plays else [])


@pytest.mark.parametrize("path", map(_marked, CASES))
def test_a_finding_reads_like_this(
    path: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(path.parent)  # imports start at the folder of the file
    monkeypatch.setenv("XDG_CONFIG_HOME", f"config/{path.stem}")
    wrong = {"wandb": "not installed here"}
    monkeypatch.setattr("rlc.check.rules.code.lacking", wrong.get)
    monkeypatch.setattr("rlc.data.commands.is_command", lambda name: name == "python")
    text = path.read_text(encoding="utf-8")
    command = text.splitlines()[0]
    overrides, reader = re.findall(r"--set (\S+)", command), Reader(imports="--import" in command)
    compiled = compile_source(Source(path.name, text), overrides, reader=reader)
    found = compiled.diagnostics
    if "rlc emit" in command:
        with pytest.raises(EmitError) as refused:
            emit_as(command, compiled, tmp_path)
        found = refused.value.diagnostics
    if path.stem in TESTED:
        found = run_recipe_tests([path.name]).findings
    if "rlc audit" in command:
        assert compiled.plan is not None
        audit_here(monkeypatch)
        found = audit(compiled.plan, keep=False).diagnostics()
    # One mistake is one finding: nothing follows from it.
    assert {item.code for item in found} == {path.stem}
    shown = render_human(found, color=False).replace(f"{path.parent}/", "")
    check_golden(path.with_suffix(".txt"), shown)


def emit_as(command: str, compiled: CompileResult, folder: Path) -> None:
    """Write what the command of a case writes."""
    assert compiled.plan is not None, [item.message for item in compiled.diagnostics]
    if "--target script" in command:
        script(compiled.plan)
    include = [Path(name) for name in re.findall(r"--include (\S+)", command)]
    options: dict[str, Any] = {"overrides": [], "seed": None, "rehearse": False, "service": None}
    emit_job(compiled, folder / "job", options, None, include)


def test_every_code_of_the_checker_has_a_case() -> None:
    codes = {code for code in code_titles() if code >= "RL01"}
    assert codes == {path.stem for path in CASES}
