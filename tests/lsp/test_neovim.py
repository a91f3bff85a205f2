"""The set-up of Neovim that the page about editors shows, in a real one."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from paths import ROOT

PAGE = (ROOT / "docs" / "editors.md").read_text("utf-8")
RECIPE = """\
model policy {
  base = "tiny"
  lora_rank = 8
}

train main { model = policy advantage = rebn() optimizer = adam(1e-5) }
"""
# What a user would do: open the recipe, wait for the server, look.
SCRIPT = """
local buffer = vim.api.nvim_get_current_buf()
local said = { filetype = vim.bo.filetype, commentstring = vim.bo.commentstring }
local function colours(row, column)
  local names = {}
  for _, found in ipairs(vim.treesitter.get_captures_at_pos(buffer, row, column)) do
    table.insert(names, found.capture)
  end
  return names
end
vim.treesitter.get_parser(buffer):parse()
said.broken = vim.treesitter.get_node({ bufnr = buffer, pos = { 0, 0 } }):tree():root():has_error()
said.kind, said.field, said.text = colours(0, 0), colours(2, 3), colours(1, 11)
said.lighted = vim.treesitter.highlighter.active[buffer] ~= nil
said.folds = { vim.fn.foldlevel(2), vim.fn.foldlevel(5), vim.fn.foldclosed(2) }

vim.wait(60000, function() return #vim.diagnostic.get(buffer) > 0 end, 50)
said.findings = vim.tbl_map(function(each) return each.code end, vim.diagnostic.get(buffer))
local function ask(method, row, column)
  local place = { textDocument = vim.lsp.util.make_text_document_params(buffer),
    position = { line = row, character = column }, options = { tabSize = 2, insertSpaces = true },
    range = { start = { line = 0, character = 0 }, ["end"] = { line = 6, character = 0 } } }
  local answers = vim.lsp.buf_request_sync(buffer, method, place, 60000) or {}
  for _, answer in pairs(answers) do return answer.result end
end
said.hover = ask("textDocument/hover", 2, 4).contents.value
said.completion = #(ask("textDocument/completion", 5, 13).items or {})
said.hints = #ask("textDocument/inlayHint", 0, 0)
said.shows_hints = vim.lsp.inlay_hint.is_enabled({ bufnr = buffer })
vim.lsp.buf.format({ timeout_ms = 60000 })
said.laid_out = vim.api.nvim_buf_get_lines(buffer, 0, 3, false)
vim.fn.writefile({ vim.json.encode(said) }, "said.json")
vim.cmd("qall!")
"""


def blocks(language: str) -> list[str]:
    """The examples of the page's part about Neovim in one language."""
    part = PAGE.partition("## Neovim")[2].partition("\n## ")[0]
    return re.findall(rf"^```{language}\n(.*?)^```", part, re.M | re.S)


@pytest.fixture
def neovim() -> str:
    program = os.environ.get("NVIM") or shutil.which("nvim")
    if program is None or shutil.which("cc") is None:
        pytest.skip("Neovim or a C compiler is not there")
    said = subprocess.run([program, "--version"], capture_output=True, text=True, check=True)
    version = re.match(r"NVIM v(\d+)\.(\d+)", said.stdout)
    if version is None or (int(version[1]), int(version[2])) < (0, 11):
        pytest.skip("Neovim is older than the page asks for")
    return program


@pytest.mark.slow
def test_the_set_up_of_the_page_works(neovim: str, tmp_path: Path) -> None:
    (tmp_path / "rlc").symlink_to(ROOT)
    (tmp_path / "bin").mkdir()
    command = tmp_path / "bin" / "rlc"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m rlc "$@"\n')
    command.chmod(0o755)
    (tmp_path / "recipe.rl").write_text(RECIPE)
    (tmp_path / "init.lua").write_text("\n".join(blocks("lua")))
    (tmp_path / "look.lua").write_text(SCRIPT)
    environment = {
        **{name: text for name, text in os.environ.items() if not name.startswith("XDG_")},
        "HOME": str(tmp_path),
        "PATH": f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
    }
    for block in blocks("sh"):
        subprocess.run(["sh", "-ec", block], cwd=tmp_path, env=environment, check=True)
    result = subprocess.run(
        [neovim, "--headless", "-u", "init.lua", "recipe.rl", "+luafile look.lua", "+cquit"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stderr
    said: dict[str, Any] = json.loads((tmp_path / "said.json").read_text("utf-8"))
    assert (said["filetype"], said["commentstring"]) == ("rl", "# %s")
    assert said["lighted"]
    assert not said["broken"]
    assert (said["kind"], said["field"], said["text"]) == (["keyword"], ["property"], ["string"])
    assert said["folds"] == [1, 0, -1]  # there, and open
    assert "RL0302" in said["findings"]  # `train` without an environment
    assert said["hover"].startswith("**lora_rank** of `model`: int")
    assert said["completion"] > 5
    assert said["hints"] > 0
    assert said["shows_hints"]
    assert said["laid_out"] == ["model policy {", '  base      = "tiny"', "  lora_rank = 8"]
