"""GEM environments under the adapter: reproducible, isolated, and showing all they have."""

from __future__ import annotations

import importlib
import logging
import os
import pickle
import random
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from rlc.catalog.facts import gem_facts as facts
from rlc.catalog.facts import gem_ids, is_broken
from rlc.chat.turns import ContractError, EnvError
from rlc.envs.gem.source import GemSource, import_gem
from rlc.envs.workers.threads import GlobalRngLock

pytestmark = pytest.mark.slow

GUESS = "game:GuessTheNumber-v0-easy"


def play(episode: object, actions: list[str]) -> list[tuple[str, float, bool]]:
    seen = [episode.step(action) for action in actions]  # type: ignore[attr-defined]
    return [(after.text, after.reward, after.done) for after in seen]


def test_members_share_the_state_and_the_prompt() -> None:
    group = GemSource(GUESS, {}).group(seed=5, size=4)
    assert len({episode.first.text for episode in group}) == 1
    answers = [play(episode, ["\\boxed{3}", "\\boxed{7}"]) for episode in group]
    assert all(answer == answers[0] for answer in answers)


def test_different_seeds_are_different_tasks() -> None:
    source = GemSource("rg:spell_backward", {})
    firsts = {source.group(seed, 1)[0].first.text for seed in range(8)}
    assert len(firsts) > 4


def test_an_environment_is_made_once_for_all_who_play_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each evaluation of a run opens a source, and making one may read a data set."""
    gem, made = import_gem(), list[str]()
    make = gem.make

    def counted(env_id: str, **args: Any) -> Any:
        made.append(env_id)
        return make(env_id, **args)

    monkeypatch.setattr(gem, "make", counted)
    first, second = (GemSource(GUESS, {"max_turns": 3}).group(5, 1)[0] for _ in range(2))
    assert made == [GUESS]
    play(first, ["\\boxed{3}"])
    alone = GemSource(GUESS, {"max_turns": 4}).group(5, 1)[0]
    assert made == [GUESS, GUESS]
    assert play(second, ["\\boxed{3}"]) == play(alone, ["\\boxed{3}"])


def test_results_do_not_depend_on_interleaving() -> None:
    """2048 draws from the global generator in every step."""
    source, moves = GemSource("game:Game2048-v0-easy", {}), ["\\boxed{up}", "\\boxed{left}"] * 4
    alone = play(source.group(3, 2)[1], moves)
    first, second = source.group(3, 2)
    interleaved = []
    for move in moves:
        first.step("\\boxed{down}")
        random.random()
        np.random.rand(3)
        after = second.step(move)
        interleaved.append((after.text, after.reward, after.done))
    assert interleaved == alone


def test_the_board_that_only_the_suffix_shows_is_in_the_observation() -> None:
    plain = GemSource("game:Sudoku-v0-easy", {}).group(1, 1)[0]
    concat = GemSource("game:Sudoku-v0-easy", {}, observation="concat").group(1, 1)[0]
    assert "current board layout" in plain.first.text
    assert "current board layout" in concat.first.text


def test_concat_repeats_the_history_of_observations() -> None:
    episode = GemSource(GUESS, {}, observation="concat").group(1, 1)[0]
    after = episode.step("\\boxed{5}")
    assert after.text.startswith(episode.first.text.removesuffix("Enter your next guess."))


def test_arguments_reach_the_environment() -> None:
    episode = GemSource(GUESS, {"max_number": 77}).group(1, 1)[0]
    assert "between 1 and 77" in episode.first.text


def test_a_format_error_is_a_reward_and_the_end() -> None:
    after = GemSource(GUESS, {}).group(1, 1)[0].step("seven?")
    assert (after.reward, after.done) == (-0.1, True)


def test_an_unknown_environment_is_one_sentence() -> None:
    with pytest.raises(EnvError, match="gem cannot make `game:Chess`"):
        GemSource("game:Chess", {})


def test_importing_gem_leaves_logging_alone() -> None:
    GemSource(GUESS, {})
    assert logging.getLogger().level == logging.WARNING


class Chat:
    """A tokenizer of which only the chat template is asked for."""

    chat_template = "there is one"

    def apply_chat_template(self, messages: Any, **_: Any) -> str:
        return "".join(f"<{message['role']}>{message['content']}" for message in messages)

    def __deepcopy__(self, memo: Any) -> Chat:
        raise AssertionError("a tokenizer is shared, not copied")


def test_concat_with_action_shows_what_the_model_did() -> None:
    episode = GemSource(GUESS, {}, observation="concat_with_action").group(1, 1)[0]
    assert "\\boxed{5}" in episode.step("I say \\boxed{5}").text


def test_concat_chat_is_a_chat_of_the_whole_history() -> None:
    first, second = GemSource(GUESS, {}, "concat_chat", Chat()).group(1, 2)
    text = first.step("\\boxed{5}").text
    assert text.startswith("<user>")
    assert "<assistant>\\boxed{5}<user>" in text
    assert "\\boxed{9}" not in second.step("\\boxed{5}").text


def test_concat_chat_on_reset_is_a_chat_of_the_first_turn_only() -> None:
    episode = GemSource(GUESS, {}, "concat_chat_on_reset", Chat()).group(1, 1)[0]
    assert episode.first.text.startswith("<user>")
    assert episode.step("\\boxed{5}").text.count("<user>") == 1


def test_a_model_without_a_chat_template_has_no_chat() -> None:
    with pytest.raises(EnvError, match="`concat_chat\\(\\)` needs a chat template"):
        GemSource(GUESS, {}, "concat_chat", object())


SLOW = {"game:Sokoban-v0-hard", "game:Sokoban-v0-random"}  # seconds for each level
PLAYABLE = sorted(
    env for env in gem_ids() if not facts(env)["needs"] and not is_broken(env) and env not in SLOW
)


def random_actions(source: GemSource) -> list[str]:
    """Two actions that the environment itself thinks of, where it does."""
    env = source.group(3, 1)[0]._env.unwrapped  # type: ignore[attr-defined]
    random.seed(1)
    try:
        return [env.sample_random_action() for _ in range(2)]
    except NotImplementedError:
        return ["no answer", "\\boxed{[1]}"]


@pytest.mark.filterwarnings("default")  # those of the libraries are their own affair
@pytest.mark.parametrize("env_id", PLAYABLE)
def test_every_environment_plays_the_same_whatever_plays_beside_it(env_id: str) -> None:
    source = GemSource(env_id, {})
    actions = random_actions(source)
    alone = play_on(source.group(3, 2)[1], actions)
    first, second = source.group(3, 2)
    first.step(actions[0])
    random.seed()
    np.random.seed()
    assert play_on(second, actions) == alone
    assert alone[0]
    assert all(isinstance(text, str) for text, *_ in alone)


@pytest.mark.filterwarnings("default")
def test_an_answer_that_a_scorer_cannot_read_is_wrong() -> None:
    """The library raises ValueError."""
    first, second = GemSource("rg:prime_factorization", {}).group(3, 2)
    after = first.step("\\boxed{word}")
    assert (after.reward, after.done, after.metrics) == (0, True, {"unreadable": 1})
    assert second.step("no answer").metrics == {}


def play_on(episode: Any, actions: list[str]) -> list[tuple[Any, ...]]:
    """What is seen until the episode ends, its beginning included."""
    seen: list[tuple[Any, ...]] = [(episode.first.text,)]
    for action in actions:
        after = episode.step(action)
        seen.append((after.text, after.reward, after.done, after.truncated))
        if after.done:
            break
    return seen


def test_threads_do_not_get_into_each_others_draws() -> None:
    source, moves = GemSource("game:Game2048-v0-easy", {}), ["\\boxed{up}", "\\boxed{left}"] * 4
    alone = [play_on(episode, moves) for episode in source.group(3, 8)]
    with ThreadPoolExecutor(8) as pool:
        together = list(pool.map(lambda e: play_on(e, moves), source.group(3, 8)))
    assert together == alone


def test_who_hangs_with_the_generators_in_hand_can_be_passed_by() -> None:
    turns, hangs, entered = GlobalRngLock(), threading.Event(), threading.Event()

    def hang() -> None:
        with turns.held_by("hanging"):
            entered.set()
            hangs.wait()

    thread = threading.Thread(target=hang)
    thread.start()
    entered.wait()
    turns.release("another")  # which does not hold it
    with ThreadPoolExecutor(1) as pool:
        taken = turns.held_by("next")
        waits = pool.submit(taken.__enter__)
        assert not waits.done()
        turns.release("hanging")
        waits.result(timeout=5)
    hangs.set()
    thread.join()
    assert turns._holder == "next"  # the end of the one that hung takes nothing away


@pytest.mark.parametrize("env_id", ["game:Sudoku-v0-easy", "rg:chain_sum"])
def test_an_episode_travels_without_what_all_have_in_common(env_id: str) -> None:
    source = GemSource(env_id, {})
    actions = random_actions(source)
    stays, travels = source.group(3, 2)
    state = pickle.dumps(travels)
    assert len(state) < 5_000
    assert play_on(pickle.loads(state), actions) == play_on(source.group(3, 2)[1], actions)
    assert stays.first == travels.first


def test_an_episode_that_is_cut_off_has_no_end_of_its_own() -> None:
    episode = GemSource("game:Game2048-v0-easy", {"max_turns": 1}).group(1, 1)[0]
    after = episode.step("\\boxed{up}")
    assert after.done
    assert isinstance(after.truncated, bool)


def test_episodes_are_counted_as_the_librarys_own_wrapper_counts_them() -> None:
    from gem.wrappers.episode_tracking_wrapper import EpisodeTrackingWrapper

    moves = ["\\boxed{5}", "\\boxed{6}", "no guess"]
    ours, theirs = GemSource(GUESS, {}).group(4, 2)
    tracked = EpisodeTrackingWrapper(theirs._env)  # type: ignore[attr-defined]
    seen = play(ours, moves)
    for move in moves:
        *_, info = tracked.step(move)
    assert info["step_counter"] == len(seen)
    assert info["cumulative_rewards"] == sum(reward for _, reward, _ in seen)


@pytest.fixture
def rows(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Gives the environments that load from a hub rows of our own."""

    def give(module: str, *given: dict[str, Any]) -> None:
        made = importlib.import_module("datasets").Dataset.from_list(list(given))
        monkeypatch.setattr(importlib.import_module(module), "load_dataset", lambda _: made)

    return give


@pytest.fixture
def math(rows: Callable[..., None]) -> Iterator[GemSource]:
    rows("gem.envs.math_env", *({"problem": f"{n} + {n}?", "answer": str(2 * n)} for n in range(9)))
    source = GemSource("math:Math12K", {"use_mp": False})
    yield source
    source.close()


def test_math_is_graded_outside_the_main_thread(math: GemSource) -> None:
    group = math.group(5, 3)
    number = int(group[0].first.text.split()[0])
    replies = [f"It is \\boxed{{\\frac{{{4 * number}}}{{2}}}}.", "\\boxed{99}", "no answer"]
    with ThreadPoolExecutor(3) as pool:
        seen = list(pool.map(lambda e, reply: e.step(reply), group, replies))
    assert [(after.reward, after.done) for after in seen] == [(1, True), (0, True), (0, True)]
    assert [after.metrics["correct"] for after in seen] == [1, 0, 0]


def test_a_grader_that_hangs_is_replaced(math: GemSource) -> None:
    (episode,) = math.group(5, 1)
    number = int(episode.first.text.split()[0])
    math._grader.ask("\\boxed{1}", "1")
    (process,) = math._grader._idle
    os.kill(process.pid, signal.SIGSTOP)
    math._grader.patience = 0.1
    assert episode.step(f"\\boxed{{{2 * number}}}").reward == 0
    math._grader.patience = 10.0
    assert process.poll() is not None
    assert math.group(5, 1)[0].step(f"\\boxed{{{2 * number}}}").reward == 1


def test_a_question_that_is_not_answered_is_wrong(rows: Callable[..., None]) -> None:
    """The library raises UnboundLocalError."""
    rows("gem.envs.qa_env", {"problem": "Where?", "answer": ["Rome", "Roma"]})
    group = GemSource("qa:HotpotQA", {}).group(1, 2)
    assert "Where?" in group[0].first.text
    assert group[0].step("I do not know").reward == 0
    assert group[1].step("<answer>Roma</answer>").reward == 1


def test_programs_are_run_against_their_tests(rows: Callable[..., None]) -> None:
    tests = {"inputs": ["2", "3"], "outputs": ["4", "6"]}
    rows("gem.envs.code_env", {"problem": "Double it.", "tests": tests})
    group = GemSource("code:CodeContest", {}).group(1, 3)
    replies = ["```python\nprint(2 * int(input()))\n```", "```python\nprint(4)\n```", "none"]
    seen = [e.step(reply).reward for e, reply in zip(group, replies, strict=True)]
    assert seen == [1, 0, -0.1]


def test_what_is_no_text_cannot_be_played(rows: Callable[..., None]) -> None:
    rows("gem.envs.math_visual_env", {"problem": "See?", "images": "a", "answer": "1"})
    source = GemSource("math:Geometry3K", {"use_mp": False})
    with pytest.raises(ContractError, match="gave a dict where text is due"):
        source.group(1, 1)
