"""Training scripts as people write them: words, quotes, continuations, variables."""

from __future__ import annotations

import pytest

from rlc.imports.convert import commands
from rlc.imports.settings import InputError


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a b  c\n", ["a", "b", "c"]),
        ("a \\\n  b \\\r\n c", ["a", "b", "c"]),
        ("a 'b c' \"d e\" f\\ g", ["a", "b c", "d e", "f g"]),
        ("a x='{\"use_mp\": false}'", ["a", 'x={"use_mp": false}']),
        ("a l=['console','wandb']", ["a", "l=[console,wandb]"]),
        ("a name=run#1 # and a comment", ["a", "name=run#1"]),
        ("a '' b", ["a", "", "b"]),
        ('a "\\"q\\"" "$"', ["a", '"q"', "$"]),
        ('run "$@" b', ["run", "b"]),
        (
            "a n=$((2 * (3 + 4) / 7)) $((x * 2)) $(date +%s) $HOME/x",
            ["a", "n=2", "$((x * 2))", "$(date +%s)", "~/x"],
        ),
        ('a x=${X:-"${HOME}/y"} $Y', ["a", "x=~/y", "$Y"]),
    ],
)
def test_words(text: str, words: list[str]) -> None:
    assert commands(text) == [words]


def test_commands_end_at_lines_and_separators() -> None:
    found = commands("set -x\n\n# a comment\ncd x && python t.py a=1; echo done | tee log\n")
    assert found == [
        ["set", "-x"],
        ["cd", "x"],
        ["python", "t.py", "a=1"],
        ["echo", "done"],
        ["tee", "log"],
    ]


def test_variables_of_the_script_are_filled_in() -> None:
    script = """\
export M=Qwen/Qwen3-8B
N=4
K='$M'
CUDA_VISIBLE_DEVICES=0 run m=$M n=${N}x "q=$M" k=$K d=${D:-7}
"""
    assert commands(script) == [
        ["run", "m=Qwen/Qwen3-8B", "n=4x", "q=Qwen/Qwen3-8B", "k=$M", "d=7"]
    ]


def test_several_words_in_a_variable() -> None:
    script = """\
MORE="b=1  c=2"
NONE=""
LIST=(
    d=3  # with a comment
    # e=4
    "f='x y'"
)
K=$MORE
run ${MORE} $NONE "$MORE" g="$K" "${LIST[@]}" h
"""
    words = ["run", "b=1", "c=2", "b=1  c=2", "g=b=1  c=2", "d=3", "f='x y'", "h"]
    assert commands(script) == [words]


def test_options_without_their_program_are_kept() -> None:
    assert commands("env_id=rg:chain_sum num_env=64") == [["env_id=rg:chain_sum", "num_env=64"]]


@pytest.mark.parametrize("text", ["a 'b", 'a "b', 'a "b\\'])
def test_an_open_quote_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="never closed"):
        commands(text)
