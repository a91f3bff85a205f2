"""GEM's tools under the adapter: the library's own texts and rewards, with limits that hold."""

from __future__ import annotations

import copy
import os
import pickle
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import msgspec
import pytest
from gem.tools.python_code_tool import PythonCodeTool
from gem.tools.search_tool import SearchTool as GemSearchTool
from gem.tools.tool_env_wrapper import ToolEnvWrapper

from rlc.catalog.index import wrapper_traits
from rlc.chat.turns import EnvError, Observation
from rlc.envs.base import Episode
from rlc.envs.gem.source import GemSource
from rlc.envs.gem.tools import LONGEST, PythonTool, Sandbox, SearchTool, require_search

pytestmark = pytest.mark.slow

GUESS = "game:GuessTheNumber-v0-easy"
PYTHON = {"timeout": 5.0, "uses": 3, "reward_use": 0.05, "reward_success": 0.25, "errors": "full"}


def code(text: str) -> str:
    return f"<python>{text}</python>"


def group(size: int = 1, env: str = GUESS, observation: str | None = None, **args: Any) -> Any:
    tools = [("python_tool", PYTHON | args)]
    return GemSource(env, {}, observation, tools=tools).group(1, size)


def observed(text: str, last_line: bool = False, timeout: float = 5.0) -> tuple[Any, ...]:
    return PythonTool(timeout, last_line).execute_action(text)


@pytest.mark.parametrize("last_line", [False, True])
@pytest.mark.parametrize(
    "text",
    [
        "I add. <python>print(1 + 1)</python> and then <python>print(3)</python>",
        "```python\nfor i in range(3):\n    print(i)\n```",
        "```\npython\nprint('between')\n```",
        "<python>\n  \n</python>",
        "no code here",
        "<python>print(1)",
        code("print('first')\n1 / 0"),
        code("def f(:"),
        code("print(sqrt(16), Counter('aab').most_common(1))"),
        code("import subprocess; subprocess.run(['ls'])"),
        code("import sys; sys.exit(3)"),
        code("..."),
        code("import sys; print('seen', file=sys.stderr)"),
        code("raise SystemExit(2)"),
        code("print(len('" + "x" * 4_000 + "'))"),
    ],
)
def test_texts_and_outcomes_are_those_of_the_library(
    text: str, last_line: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", os.path.dirname(sys.executable))  # the library runs any `python`
    expected = PythonCodeTool(keep_error_last_line=last_line).execute_action(text)
    assert observed(text, last_line) == expected


def test_code_that_takes_too_long_is_ended_and_says_so() -> None:
    started = time.monotonic()
    found, failed, text, _ = observed(code("while True: pass"), timeout=0.3)
    assert (found, failed) == (True, True)
    assert text == "Code execution result: Execution timed out after 0.3 seconds.\n"
    assert time.monotonic() - started < 3


def test_children_end_with_the_code_that_started_them(tmp_path: Any) -> None:
    path = tmp_path / "pid"
    child = (
        f"import os, time\nif not os.fork():\n    open({str(path)!r}, 'w').write(str(os.getpid()))"
    )
    outcome = Sandbox().run(f"{child}\n    time.sleep(60)\nelse:\n    time.sleep(0.3)", 5.0)
    assert outcome.ok
    assert ended(int(path.read_text()))


def ended(pid: int) -> bool:
    """Whether a process that was killed is gone, or waits to be collected."""
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline:
        try:
            with open(f"/proc/{pid}/stat") as file:
                if file.read().rpartition(")")[2].split()[0] == "Z":
                    return True
        except (FileNotFoundError, ProcessLookupError):
            return True
    return False


def test_memory_is_limited() -> None:
    _, failed, text, _ = observed(code("x = bytearray(4 * 1024**3); print('had it')"))
    assert failed
    assert text.endswith("MemoryError\n")


def test_output_is_limited() -> None:
    _, failed, text, _ = observed(code("print('x' * 1_000_000)"))
    assert not failed
    assert len(text) < LONGEST + 100
    assert "[cut off after 10,000 characters]" in text


def test_code_sees_neither_keys_nor_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TINKER_API_KEY", "tml-secret")
    _, _, text, _ = observed(code("import os; print(sorted(os.environ), os.listdir())"))
    assert "TINKER" not in text
    assert "[]" in text
    assert "EOFError" in observed(code("input()"))[2]


@pytest.mark.parametrize("text", ["print('\0')", "print('\udce4')"])
def test_code_that_is_no_text_is_an_error_of_the_code(text: str) -> None:
    found, _, observation, _ = observed(code(text))
    assert found
    assert observation.startswith("Code execution result: ")


def test_stopping_ends_what_runs_at_once() -> None:
    sandbox, seen = Sandbox(), list[Any]()
    thread = threading.Thread(target=lambda: seen.append(sandbox.run("while True: pass", 30.0)))
    thread.start()
    while sandbox._running is None:
        time.sleep(0.001)
    sandbox.stop()
    thread.join(timeout=5)
    assert not seen[0].ok
    with pytest.raises(EnvError, match="the tool is closed"):
        sandbox.run("print(1)", 1.0)


def test_the_prompt_says_how_to_call_the_tool() -> None:
    (episode,) = group()
    assert PythonCodeTool().instruction_string() in episode.first.text


def test_a_call_is_rewarded_and_the_game_does_not_see_it() -> None:
    (episode,) = group()
    after = episode.step(code("print(6 * 7)"))
    assert after.text == "Code execution result: 42\n\n"
    assert (after.reward, after.done) == (pytest.approx(0.3), False)
    assert episode.step(code("1 / 0")).reward == pytest.approx(0.05)
    assert episode.step("\\boxed{99}").metrics == {
        "python_tool_uses": 2,
        "python_tool_successes": 1,
    }


def test_after_the_last_call_the_reply_goes_to_the_game() -> None:
    (episode,) = group(uses=1)
    assert "Reached the maximum number of tool use" in episode.step(code("print(1)")).text
    after = episode.step(code("print(1)"))
    assert (after.reward, after.done) == (-0.1, True)  # no guess in it


def test_an_unknown_name_fails_even_with_the_usual_imports() -> None:
    _, failed, text, _ = observed(code("print(no_such_name)"), last_line=True)
    assert failed
    assert text == "Code execution result: NameError: name 'no_such_name' is not defined\n"


def test_imports_of_what_is_not_installed_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gem.utils.constants.BASE_IMPORTS", "import no_such_library\nimport math")
    _, failed, text, _ = observed(code("print(math.pi)"))
    assert (failed, text) == (False, "Code execution result: 3.141592653589793\n\n")


def test_whole_episodes_are_rewarded_as_by_the_library() -> None:
    """The same wrapper around the same environment, with the library's own tool."""
    actions = [code("print(5)"), "\\boxed{5}", code("1 / 0"), "\\boxed{5}", code("print(1)"), "?"]
    source = GemSource(GUESS, {})
    (plain,) = source.group(1, 1)
    theirs = ToolEnvWrapper(plain._env, [PythonCodeTool()], 0.05, 0.25, 3)  # type: ignore[attr-defined]
    (ours,) = group()
    for action in actions:
        text, reward, terminated, truncated, _ = theirs.step(action)
        after = ours.step(action)
        assert (after.reward, after.done) == (reward, terminated or truncated)
        assert after.text.startswith(text)


def test_members_of_a_group_do_not_share_their_calls() -> None:
    first, second = group(size=2)
    for _ in range(3):
        first.step(code("print(1)"))
    after = second.step(code("print(1)"))
    assert after.metrics["python_tool_uses"] == 1
    assert "Reached the maximum" not in after.text


def test_a_single_turn_environment_becomes_one_of_many() -> None:
    (episode,) = group(env="rg:chain_sum")
    assert not episode.step(code("print(1)")).done
    assert episode.step("\\boxed{1}").done


def test_a_history_has_the_call_and_its_result() -> None:
    (episode,) = group(observation="concat_with_action")
    text = episode.step("Let me see. " + code("print(42)") + " so it is 42").text
    assert "Let me see. <python>print(42)</python>\nCode execution result: 42" in text
    assert "so it is" not in text
    assert episode.step("\\boxed{5}").metrics["python_tool_uses"] == 1


def test_a_closed_episode_runs_nothing() -> None:
    (episode,) = group()
    episode.close()
    episode.close()
    with pytest.raises(EnvError, match="the tool is closed"):
        episode.step(code("print(1)"))


def test_an_episode_can_move_to_another_process() -> None:
    (episode,) = group()
    episode.step(code("print(1)"))
    for copied in (copy.deepcopy(episode), pickle.loads(pickle.dumps(episode))):
        assert copied.step(code("print(2)")).metrics["python_tool_uses"] == 2


class Passages(BaseHTTPRequestHandler):
    """Finds the query itself, in as many passages as are asked for."""

    asked: list[dict[str, Any]] = []

    def do_POST(self) -> None:
        request = msgspec.msgpack.decode(self.rfile.read(int(self.headers["Content-Length"])))
        self.asked.append(request)
        if request["query"] == "fail":
            self.send_error(500)
            return
        passages = [
            {"document": {"contents": f"Title {n}\nabout {request['query']}\nmore"}, "score": 1.0}
            for n in range(request["topk"])
        ]
        self.send_response(200)
        self.end_headers()
        self.wfile.write(msgspec.msgpack.encode({"result": passages}))

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def server() -> Iterator[str]:
    Passages.asked.clear()
    with ThreadingHTTPServer(("127.0.0.1", 0), Passages) as http:
        thread = threading.Thread(target=http.serve_forever, args=(0.01,))
        thread.start()
        yield f"http://127.0.0.1:{http.server_port}/retrieve"
        http.shutdown()
        thread.join()


def search(url: str, **args: Any) -> tuple[str, Mapping[str, Any]]:
    return "search_tool", {"url": url, "uses": 2, "top_k": 2, "timeout": 5.0} | args


def searching(*tools: tuple[str, Mapping[str, Any]]) -> Episode:
    return GemSource(GUESS, {}, tools=tools).group(1, 1)[0]


@pytest.mark.server
def test_a_search_shows_passages_as_the_library_does(server: str) -> None:
    action = "I need it: <search> rivers </search> please"
    theirs = GemSearchTool(search_url=server, topk=2, timeout=5).execute_action(action)
    after = searching(search(server)).step(action)
    assert after.text.strip() == theirs[2].strip()
    assert "Doc 2(Title: Title 1) about rivers\nmore" in after.text
    assert after.reward == 0
    assert after.metrics == {"search_tool_uses": 1, "search_tool_successes": 1}
    assert Passages.asked[-1] == {"query": "rivers", "topk": 2, "return_scores": True}


@pytest.mark.server
def test_an_error_of_the_server_is_shown_to_the_model(server: str) -> None:
    after = searching(search(server)).step("<search>fail</search>")
    assert "[SearchTool Error: 500" in after.text
    assert not after.done
    assert after.metrics == {"search_tool_uses": 1, "search_tool_successes": 0}


def test_an_error_reads_the_same_twice() -> None:
    texts = {SearchTool("http://127.0.0.1:9/", 3, 5.0).execute_action("<search>a</search>")[2]}
    texts |= {SearchTool("http://127.0.0.1:9/", 3, 5.0).execute_action("<search>a</search>")[2]}
    assert len(texts) == 1
    assert "[SearchTool Error:" in texts.pop()


@pytest.mark.server
def test_a_server_that_is_not_there_is_found_before_the_run(server: str) -> None:
    require_search([search(server)])
    with pytest.raises(
        EnvError, match=r"`search_tool\(\)`, http://127.0.0.1:9/, gave nothing: con"
    ):
        require_search([search("http://127.0.0.1:9/")])


@pytest.mark.server
def test_two_tools_have_limits_of_their_own(server: str) -> None:
    episode = searching(("python_tool", PYTHON | {"uses": 1}), search(server))
    both = PythonCodeTool().instruction_string(), GemSearchTool().instruction_string()
    assert all(text in episode.first.text for text in both)
    episode.step(code("print(1)"))
    after = episode.step("<search>rivers</search>")
    assert after.metrics == {
        "python_tool_uses": 1,
        "python_tool_successes": 1,
        "search_tool_uses": 1,
        "search_tool_successes": 1,
    }


def test_observations_are_what_the_runtime_takes() -> None:
    (episode,) = group()
    assert isinstance(episode.step("\\boxed{5}"), Observation)


@pytest.mark.parametrize(
    ("name", "tool"), [("python_tool", PythonCodeTool()), ("search_tool", GemSearchTool())]
)
def test_a_tool_asks_for_the_marks_that_the_catalogue_says(name: str, tool: Any) -> None:
    (mark,) = wrapper_traits(name).asks
    assert mark in tool.instruction_string()
