"""Data sets of the cookbook as sources: tasks by number, tokens as they are, rewards of groups."""

from __future__ import annotations

import asyncio
import copy
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import cookbook_builders
import pytest
from chat_support import tokenizer
from cookbook_support import ARITHMETIC, WORDS, key, on, play, source, tokens
from tinker_cookbook.renderers import get_renderer, get_text_content

from rlc.chat.turns import EnvError
from rlc.envs.base import AsyncSource
from rlc.envs.cookbook.renderers import registered
from rlc.envs.cookbook.sets import SharedTokenizer
from rlc.envs.cookbook.source import TokenHistory, TokenObservation
from rlc.errors import Error

pytestmark = pytest.mark.engine
SUMS = "cookbook_builders:Sums"


def test_a_task_is_a_group_and_after_the_last_the_next_epoch_begins() -> None:
    made = source()

    async def firsts() -> list[str]:
        texts = []
        for number in range(12):
            episodes = await made.open(key(number), [0, 1])
            texts.append(episodes[0].first.text)
            for episode in episodes:
                await episode.close()
        return texts

    texts = on(made, firsts())
    words = ["one", "two", "three", "four", "five"]
    assert [next(w for w in words if f"Say {w}." in text) for text in texts] == [
        *words,
        *words,
        *words[:2],
    ]


def test_batches_are_asked_for_once_while_they_are_gone_through() -> None:
    made = source()
    data: Any = made._batches._data
    data.asked.clear()
    for number in range(5):
        made._batches.group(number)
    assert data.asked == [0, 1, 2]
    made._batches.group(1)  # a second time, as after a failure
    assert data.asked == [0, 1, 2, 0]
    asyncio.run(made.close())


def test_prompts_and_replies_are_the_tokens_themselves() -> None:
    made = source()

    async def played() -> Any:
        first, _ = await made.open(key(0), [0, 1])
        return await play(first, "one", "no")

    first, second, last = on(made, played())
    assert isinstance(first, TokenObservation)
    assert first.text == tokenizer().decode(list(first.tokens))
    assert list(first.stop) == tokens("<|im_end|>")
    reply = tokens("one<|im_end|>")
    assert list(second.tokens[: len(first.tokens) + len(reply)]) == [*first.tokens, *reply]
    assert second.text == "\n<|im_start|>user\nOnce more.<|im_end|>\n<|im_start|>assistant\n"
    assert [o.reward for o in (second, last)] == [1.0, 0.0]
    assert last.done
    assert last.metrics == {"finished": 1.0, "tag/echo": 1.0, "tag/one": 1.0}


THOUGHT = "<think>\nIt is one.\n</think>\n\none"


@pytest.mark.parametrize("kept", [True, False])
def test_a_prompt_goes_on_with_the_sampled_tokens(kept: bool) -> None:
    """Where the template would leave out earlier thinking; the cookbook's own prompts do."""
    made = source(renderer=registered("qwen3") if kept else "qwen3")

    async def played() -> Any:
        first, other = await made.open(key(0), [0, 1])
        await play(other, "<think>\nAnother thought.\n</think>\n\none")  # which reads the same
        return await play(first, THOUGHT)

    first, second = on(made, played())
    goes_on = [*first.tokens, *tokens(f"{THOUGHT}<|im_end|>")]
    assert (list(second.tokens[: len(goes_on)]) == goes_on) is kept
    assert second.reward == 1.0
    rest = "\n<|im_start|>user\nOnce more.<|im_end|>\n<|im_start|>assistant\n"
    assert second.text.endswith(rest)
    assert ("It is one." in tokenizer().decode(list(second.tokens))) is kept


def test_what_an_environment_writes_anew_is_shown_as_the_template_shows_it() -> None:
    plain, made = get_renderer("qwen3", tokenizer()), get_renderer(registered("qwen3"), tokenizer())
    asked = [{"role": "user", "content": "Say one."}]
    reply, _ = made.parse_response(tokens(f"{THOUGHT}<|im_end|>"))
    assert reply == plain.parse_response(tokens(f"{THOUGHT}<|im_end|>"))[0]
    more = [{"role": "user", "content": "Once more."}]

    def prompt(renderer: Any, *said: Any) -> list[int]:
        shown: list[int] = renderer.build_generation_prompt([*asked, *said, *more]).to_ints()
        return shown

    kept = prompt(made, reply)
    assert kept != prompt(plain, reply)
    assert prompt(made, copy.deepcopy(reply)) == prompt(made, {**reply}) == kept
    for written in (
        {"role": "assistant", "content": get_text_content(reply)},
        {**reply, "role": "user"},
        {**reply, "tool_calls": []},
    ):
        assert prompt(made, written) == prompt(plain, written)
    again, _ = made.parse_response(tokens("two<|im_end|>"))
    assert prompt(made, reply, *more, again)[: len(kept)] == kept
    begun = [made.build_generation_prompt([*asked, reply, *more], prefill="Well") for _ in "ab"]
    assert begun[0] == plain.build_generation_prompt([*asked, reply, *more], prefill="Well")


def test_an_environment_hears_whether_a_reply_came_to_its_end() -> None:
    history = TokenHistory(tokenizer())
    history.observe(TokenObservation("", tokens=(1, 2), stop=tuple(tokens("<|im_end|>"))))
    assert history.reply(tokens("all said<|im_end|>")).finished
    assert not history.reply(tokens("cut off in the mid")).finished
    history.observe(TokenObservation("", tokens=(1, 2), stop=("]\n",)))
    assert history.reply(tokens("[move]\n")).finished


def test_older_environments_are_not_told_why_sampling_stopped() -> None:
    made = source(kind="old")

    async def played() -> Any:
        first, _ = await made.open(key(0), [0, 1])
        return await play(first, "one", "one")

    assert [seen.reward for seen in on(made, played())][1:] == [1.0, 1.0]


def test_rewards_of_a_group_come_with_the_last_step_of_each() -> None:
    made = source(kind="rivals", size=3)

    async def played() -> Any:
        episodes = await made.open(key(0, 3), [0, 1, 2])
        replies = (("one", "one"), ("one", "a long reply with one"), ("no", "no"))
        together = [play(e, *said) for e, said in zip(episodes, replies, strict=True)]
        return await asyncio.gather(*together)

    ends = [seen[-1] for seen in on(made, played())]
    assert [end.reward for end in ends] == [1.0, 2.0, 0.0]
    assert all(end.metrics["compared"] == 3 for end in ends)


def test_a_member_that_fails_is_not_compared_and_holds_nobody_up() -> None:
    made = source(kind="rivals", size=3)

    async def member(episode: Any, *replies: str) -> Any:
        try:
            return (await play(episode, *replies))[-1]
        except RuntimeError as error:
            return str(error)
        finally:
            await episode.close()

    async def played() -> Any:
        episodes = await made.open(key(0, 3), [0, 1, 2])
        replies = (("one", "one"), ("fall over",), ("one", "one and more"))
        together = [member(e, *said) for e, said in zip(episodes, replies, strict=True)]
        return await asyncio.gather(*together)

    first, failed, last = on(made, played())
    assert failed == "fell over"
    assert (first.reward, last.reward) == (1.0, 2.0)
    assert last.metrics["compared"] == 2
    assert cookbook_builders.cleaned == ["one", "one"]  # the one that was counted, and this


def test_one_that_is_compared_cannot_be_played_again_alone() -> None:
    made = source(kind="rivals")
    with pytest.raises(EnvError, match="none can be played again by itself"):
        on(made, made.open(key(0), [1]))
    assert cookbook_builders.cleaned == ["one", "one"]


def test_one_that_is_not_compared_can() -> None:
    made = source()

    async def played() -> Any:
        (again,) = await made.open(key(3), [1])
        return await play(again, "four")

    assert on(made, played())[-1].reward == 1.0


def test_a_group_is_cleaned_up_once_its_last_member_is_closed() -> None:
    made = source()

    async def closed() -> None:
        cookbook_builders.cleaned.clear()
        first, second = await made.open(key(1), [0, 1])
        await first.close()
        await first.close()
        assert not cookbook_builders.cleaned
        await second.close()
        await second.close()
        assert cookbook_builders.cleaned == ["two"]

    on(made, closed())


def test_an_environment_that_blocks_does_not_block_the_run() -> None:
    made = source()

    async def beside() -> tuple[bool, int]:
        first, _ = await made.open(key(0), [0, 1])
        task = asyncio.create_task(play(first, "block"))
        ticks = 0
        while not task.done():
            await asyncio.sleep(0)
            ticks += 1
        return task.result()[-1].done, ticks

    done, ticks = on(made, beside())
    assert not done
    assert ticks > 100


def test_the_test_set_is_another_set() -> None:
    made = source(split="test")
    assert made._batches.count == 1
    asyncio.run(made.close())


def test_text_is_no_action_of_the_cookbook() -> None:
    made = source()

    async def played() -> Any:
        from rlc.chat.turns import Action

        first, _ = await made.open(key(0), [0, 1])
        await first.play(Action("one"))

    with pytest.raises(EnvError, match="takes tokens, not text"):
        on(made, played())


@pytest.mark.parametrize(
    ("builder", "settings", "message"),
    [
        ("cookbook_builders:WordsBilder", {}, r"has no `WordsBilder`; did you mean `WordsBuilder`"),
        (
            "cookbook_bilders:WordsBuilder",
            {},
            "no module `cookbook_bilders` .*; did you mean `cookb",
        ),
        ("cookbook_builders:not_a_builder", {}, "is of the type int, which cannot be called"),
        (WORDS, {"kidn": "words"}, "does not take `kidn`; it takes .*; did you mean `kind`"),
        (ARITHMETIC, {"batch_size": 4}, "needs `n_batches`"),
        (WORDS, {"kind": "none"}, "failed to build its data: KeyError: 'none'"),
        (WORDS, {"group_size": 4}, "leave `group_size` out .*: it comes from the recipe's groups"),
        (
            WORDS,
            {"renderer_name": "x"},
            "leave `renderer_name` out .*: it comes from the recipe's model",
        ),
        (
            "cookbook_builders:PairsBuilder",
            {"size": 3},
            r"makes groups of 2.*`groups\(…, group_size = 2\)`",
        ),
        ("cookbook_builders:PairsBuilder", {"split": "test"}, "has no test set"),
        ("cookbook_builders:BrokenBuilder", {}, "OSError: the hub is away"),
        ("cookbook_builders:BrokenBuilder", {"how": "empty"}, "has no batches"),
        ("builtins:dict", {}, "failed to build its data: TypeError"),
        (SUMS, {"question": "1 + 1?"}, r"`cookbook_builders:Sums` needs `answer`: `args = {answer"),
        (SUMS, {"rows": [{"question": "?", "level": 1}]}, "needs `answer`, and the row has `ques"),
        ("cookbook_builders:Unfinished", {}, "its environments: .*abstract method"),
        ("cookbook_builders:SimpleDataset", {}, "SimpleDataset` needs `problems`"),
        ("cookbook_builders:made_set", {"split": "test"}, "has no test set"),
        (WORDS, {"rows": [{"kind": "words"}]}, "of a class of environments, and `cook.* is none"),
    ],
)
def test_what_can_be_wrong_is_said_before_anything_is_played(
    builder: str, settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(Error, match=message):
        source(builder, **settings)


@pytest.mark.parametrize(
    ("target", "settings", "questions"),
    [
        (SUMS, {"question": "What is 1 + 1?", "answer": "3"}, ["1 + 1"]),
        (
            SUMS,
            {
                "rows": [{"question": f"{n} + 2?", "level": 1} for n in (1, 2)],
                "answer": "3",
            },
            ["1 + 2", "2 + 2"],
        ),
        (
            "cookbook_builders:SimpleDataset",
            {"problems": [["What is 1 + 2?", "3"], ["What is 3?", "3"], ["What is 2 + 1?", "3"]]},
            ["1 + 2", "3?", "2 + 1"],
        ),
        ("cookbook_builders:made_set", {}, ["1 + 2"]),
        ("cookbook_builders:both_sets", {"split": "test"}, ["2 + 2"]),
    ],
)
def test_classes_and_functions_are_as_good_as_a_builder(
    target: str, settings: dict[str, Any], questions: list[str]
) -> None:
    """What they need of the recipe is given by name: renderer, tokenizer, batches and groups."""
    made = source(target, **settings)

    async def played() -> Any:
        seen = []
        for number in range(made.count):
            episode, _ = await made.open(key(number), [0, 1])
            seen.append(await play(episode, "3 or 4"))
        return seen

    seen = on(made, played())
    assert [question in first.text for (first, _), question in zip(seen, questions, strict=True)]
    assert {(last.reward, last.done) for _, last in seen} == {(1.0, True)}


def test_the_cookbooks_own_arithmetic() -> None:
    made = source(ARITHMETIC, size=3, batch_size=2, n_batches=3)

    async def played() -> Any:
        return [
            (await play(episode, reply))[-1]
            for episode, reply in zip(
                await made.open(key(4, 3), [0, 1, 2]), (str(n) for n in range(3)), strict=True
            )
        ]

    assert made._batches.count == 6
    ends = on(made, played())
    assert all(end.done for end in ends)
    assert {end.metrics["correct"] for end in ends} <= {0.0, 1.0}


def test_it_is_a_source_of_the_runtime() -> None:
    made = source()
    assert isinstance(made, AsyncSource)
    asyncio.run(made.close())
    asyncio.run(made.close())


def test_threads_take_turns_with_the_tokenizer() -> None:
    """The cookbook renders in threads, and toggles settings of a tokenizer that they share."""
    shared, text = SharedTokenizer(tokenizer()), "the same words over and over " * 40

    def encoded(number: int) -> list[int]:
        tokens: list[int] = shared.encode(text, split_special_tokens=number % 2 == 0)
        return tokens

    with ThreadPoolExecutor(8) as threads:
        found = list(threads.map(encoded, range(200)))
    assert found == [encoded(0)] * 200
    assert len(shared) == len(tokenizer())
    assert shared(text)["input_ids"] == encoded(0)
