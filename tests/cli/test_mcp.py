"""``rlc mcp`` as a coding agent meets it: the real process, spoken to by mcp's own client."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from anyio.from_thread import start_blocking_portal
from made_up_runs import write_run
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client
from paths import RECIPES, ROOT
from run_support import TINY, train

from rlc.cli.main import main

pytestmark = pytest.mark.slow  # a process that is started once for all

COMMAND = [sys.executable, "-m", "rlc"]
SMALL = TINY[: TINY.index("env spell")] + train(
    steps="1", batch="groups(1, group_size = 2)", save="every(1)"
)
WRONG = SMALL.replace("grpo()", "gprpo()")


class Agent:
    """A connected client. ``call`` returns what a tool answers; ``refused`` what it says if not."""

    def __init__(self, folder: Path, state: Path) -> None:
        self.folder = folder
        paths = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
        self.environment = os.environ | {"XDG_STATE_HOME": str(state), "PYTHONPATH": paths}
        self.portal = start_blocking_portal()
        self._portal = self.portal.__enter__()
        self._connection = self._portal.wrap_async_context_manager(self._connected())
        self.session = self._connection.__enter__()

    @asynccontextmanager
    async def _connected(self) -> Any:
        server = StdioServerParameters(
            command=COMMAND[0],
            args=[*COMMAND[1:], "mcp", str(self.folder)],
            env=self.environment,
        )
        async with stdio_client(server) as streams, ClientSession(*streams) as session:
            self.about = await session.initialize()
            yield session

    def close(self) -> None:
        self._connection.__exit__(None, None, None)
        self.portal.__exit__(None, None, None)

    def tools(self) -> dict[str, Any]:
        return {tool.name: tool for tool in self._portal.call(self.session.list_tools).tools}

    def call(self, name: str, **arguments: Any) -> Any:
        answer = self._portal.call(self.session.call_tool, name, arguments)
        assert not answer.isError, answer.content
        return answer.structuredContent

    def refused(self, name: str, **arguments: Any) -> str:
        answer = self._portal.call(self.session.call_tool, name, arguments)
        assert answer.isError, answer.content
        (content,) = answer.content
        assert "Traceback" not in content.text
        return str(content.text)


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Agent]:
    folder = tmp_path_factory.mktemp("project")
    (folder / "small.rl").write_text(SMALL)
    (folder / "wrong.rl").write_text(WRONG)
    write_run(folder / "runs" / "made-up")
    agent = Agent(folder, tmp_path_factory.mktemp("state"))
    yield agent
    agent.close()


def rlc(agent: Agent, *arguments: str, stdin: Any = subprocess.DEVNULL) -> Any:
    return subprocess.run(
        [*COMMAND, *arguments],
        cwd=agent.folder,
        env=agent.environment,
        stdin=stdin,
        capture_output=True,
        text=True,
    )


def test_it_says_what_it_can_do(agent: Agent) -> None:
    tools = agent.tools()
    assert list(tools) == [
        *("check", "explain", "catalog", "plan", "grade", "audit", "test", "probe"),
        *("run", "status", "replay", "gc", "bill", "report"),
    ]
    writing = {name for name, tool in tools.items() if not tool.annotations.readOnlyHint}
    assert writing == {"plan", "grade", "audit", "test", "probe", "run"}
    assert agent.about.serverInfo.name == "rlc"
    assert "approved" in agent.about.instructions


def test_findings_are_those_of_the_command(agent: Agent) -> None:
    found = agent.call("check", recipe="wrong.rl")
    shown = json.loads(rlc(agent, "check", "wrong.rl", "--format", "json").stdout)
    assert [{**finding, "excerpt": None} for finding in found["findings"]] == [
        {**finding, "excerpt": None} for finding in shown
    ]
    (finding,) = found["findings"]
    assert (found["clean"], found["errors"]) == (False, True)
    assert "did you mean `grpo`" in finding["help"]
    assert f"wrong.rl:{finding['line']}:{finding['column']}" in finding["excerpt"]
    assert "^" in finding["excerpt"]
    assert finding["excerpt"].endswith(finding["help"])


def test_a_text_is_checked_before_it_is_saved(agent: Agent) -> None:
    clean = {"clean": True, "errors": False, "findings": []}
    assert agent.call("check", text=SMALL) == clean
    assert agent.call("check", text=WRONG)["findings"][0]["help"] == "did you mean `grpo`?"
    assert agent.call("check", recipe="none.rl")["findings"][0]["code"] == "RL0001"
    assert "give a recipe, or a text" in agent.refused("check")


def test_explanations_are_those_of_the_command(agent: Agent) -> None:
    for what in ("RL0204", "small.rl"):
        shown = rlc(agent, "explain", what).stdout
        assert agent.call("explain", recipe=what)["result"] == shown
    shown = rlc(agent, "explain", "small.rl", "--full", "--set", "main.steps=7").stdout
    given = {"recipe": "small.rl", "full": True, "set": ["main.steps=7"]}
    assert agent.call("explain", **given)["result"] == shown


def test_mistakes_are_answered_with_what_to_do(agent: Agent) -> None:
    assert "there is no code RL9999" in agent.refused("explain", recipe="RL9999")
    assert "did you mean `grpo`" in agent.refused("explain", recipe="wrong.rl")
    assert "did you mean `grpo`" in agent.refused("catalog", term="gprpo")
    assert "there is no kind `advantge`" in agent.refused("catalog", kind="advantge")
    assert "runs/none" in agent.refused("report", run="runs/none")
    assert "none.json" in agent.refused("run", plan="none.json")


def test_no_argument_is_ignored(agent: Agent) -> None:
    assert "`catalog` has no argument `word`" in agent.refused("catalog", word="grpo")
    assert "did you mean `recipe`?" in agent.refused("plan", recpie="small.rl", out="plan.json")
    assert "`explain` needs the argument `recipe`" in agent.refused("explain")
    assert agent.refused("check", text=SMALL, data="often").startswith("`data`: ")
    assert not any(tool.inputSchema["additionalProperties"] for tool in agent.tools().values())


def test_the_catalogue_is_that_of_the_command(
    agent: Agent, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["catalog", "grpo", "--json"]) == 0
    assert agent.call("catalog", term="grpo")["entries"] == json.loads(capsys.readouterr().out)
    assert "grpo" in agent.call("catalog")["names"]["advantage"]
    assert agent.call("catalog", kind="loss")["names"].keys() == {"loss"}


def test_a_provider_is_known_once_its_file_is_there(agent: Agent) -> None:
    text = 'model policy { base = "vendor/New"  service = lab  renderer = llama3 }'
    assert agent.call("check", text=text)["errors"]
    lab = agent.folder / ".rlc" / "providers" / "lab.json"
    lab.parent.mkdir(parents=True)
    lab.write_text("{}", encoding="utf-8")
    assert not agent.call("check", text=text)["errors"]
    lab.unlink()


def test_runs_are_told_of(agent: Agent) -> None:
    (row,) = agent.call("status", folder="runs/made-up")["runs"]
    assert (row["state"], row["stages"][0]["done"]) == ("finished", 8)
    assert row["path"] in {each["path"] for each in agent.call("status")["runs"]}
    found = agent.call("report", run="runs/made-up", steps=2, episodes=3)
    assert found["run"] == row
    assert [record["step"] for record in found["metrics"]][-1] == 8
    assert len(found["metrics"]) == 2
    assert [episode["why"] for episode in found["episodes"]] == ["best", "median", "worst"]
    assert all(finding["text"] for finding in found["findings"])


def test_a_plan_overwrites_nothing_but_a_plan(agent: Agent) -> None:
    (agent.folder / "package.json").write_text("{}")
    assert "is not a plan" in agent.refused("plan", recipe="small.rl", out="package.json")
    assert "call it plan.json" in agent.refused("plan", recipe="small.rl", out="small.rl")
    assert "gprpo" in agent.refused("plan", recipe="wrong.rl", out="wrong.json")
    assert (agent.folder / "package.json").read_text() == "{}"
    assert (agent.folder / "small.rl").read_text() == SMALL
    assert not (agent.folder / "wrong.json").exists()


def answered(agent: Agent, plan: str, answer: str) -> Any:
    """`rlc mcp --approve` at a terminal at which someone has typed ``answer``."""
    ours, theirs = os.openpty()
    try:
        os.write(ours, f"{answer}\n".encode())
        return rlc(agent, "mcp", "--approve", plan, stdin=theirs)
    finally:
        os.close(ours)
        os.close(theirs)


def test_what_costs_is_approved_by_a_person_and_for_one_run(agent: Agent) -> None:
    made = agent.call("plan", recipe=str(RECIPES / "sudoku.rl"), out="sudoku.json")
    assert made["needs_approval"]
    assert made["cost"]["total"]["high"] > 0
    assert "this has not been approved: sudoku.json" in agent.refused("run", plan="sudoku.json")
    assert rlc(agent, "mcp", "--approve", "sudoku.json").returncode == 2  # no terminal
    assert answered(agent, "sudoku.json", "no").returncode == 1
    assert "this has not been approved: sudoku.json" in agent.refused("run", plan="sudoku.json")


def test_the_server_ends_with_its_client(agent: Agent) -> None:
    ended = rlc(agent, "mcp")
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")


@pytest.mark.engine
def test_an_approved_plan_runs_once(agent: Agent) -> None:
    made = agent.call("plan", recipe="small.rl", out="small.json")
    assert made["needs_approval"]  # it trains for real, if for nothing
    asked = answered(agent, "small.json", "yes")
    assert asked.returncode == 0, asked.stderr
    assert made["hash"] in asked.stdout
    ran = agent.call("run", plan="small.json", wait_seconds=300)
    assert ran["run"]["state"] in ("finished", "nothing learnt"), ran
    assert ran["run"]["path"] in {row["path"] for row in agent.call("status")["runs"]}
    assert agent.call("report", run=ran["run"]["path"])["metrics"][-1]["step"] == 1
    assert "it was run already" in agent.refused("run", plan="small.json")


@pytest.mark.engine
def test_a_rehearsal_needs_nobody(agent: Agent) -> None:
    made = agent.call("plan", recipe="small.rl", out="rehearsal.json", rehearse=True)
    assert not made["needs_approval"]
    elsewhere = {"recipe": "small.rl", "out": "elsewhere.json", "service": "tinker"}
    assert agent.call("plan", **elsewhere, rehearse=True)["needs_approval"]
    ran = agent.call("run", plan="rehearsal.json", wait_seconds=300)
    assert ran["run"]["state"] == "finished", ran
