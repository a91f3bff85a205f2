"""The text around a message: ChatML, as Qwen3's chat models write it."""

from __future__ import annotations

IM_START, IM_END, END_OF_TEXT = "<|im_start|>", "<|im_end|>", "<|endoftext|>"
SPECIALS = (END_OF_TEXT, IM_START, IM_END)
ROLES = ("system", "user", "assistant")

CHAT_TEMPLATE = (
    "{%- for message in messages %}"
    "{{- '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>\\n' }}"
    "{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}"
)

BOXED = "Put your answer inside \\boxed{}."
_REASON = "\nPlease reason step by step, and put your final answer within \\boxed{}."

# What stands before and after an observation in the one-turn prompts of GEM's own examples.
FRAMES = {
    "qwen3_general": ("Question: ", _REASON),
    "qwen3_game": (
        "You are playing language games. Make valid actions to win.\nObservation: ",
        _REASON,
    ),
}


def user_turn(text: str) -> str:
    """Return a user's message up to the point where the assistant begins to write."""
    return f"{IM_START}user\n{text}{IM_END}\n{IM_START}assistant\n"


def framed(frame: str, observation: str) -> str:
    """Return the whole prompt of one turn in the frame of that name."""
    before, after = FRAMES[frame]
    return user_turn(before + observation + after)
