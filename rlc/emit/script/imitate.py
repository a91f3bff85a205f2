"""The program of a supervised stage."""

from __future__ import annotations

from rlc.emit.script.common import constants, ended, kept, main, opened, origin, updated
from rlc.emit.script.literals import literal
from rlc.emit.script.stitch import MARK
from rlc.emit.script.unsupported import imitated
from rlc.plan import FromData, Plan, Training


def imitation_body(plan: Plan, stage: Training, data: str) -> str:
    """Return what is written for a stage alone; ``data`` is its file, as seen from the script."""
    source = stage.of(FromData)
    chats = imitated(stage)
    assert chats is not None, "what a script cannot do is refused"
    return "\n".join(
        [
            *constants(plan, stage),
            f"# The data{origin(plan, stage, 'data.path').replace('  #', ':')}",
            f"RENDERER = {literal(stage.model.renderer)}",
            f"MESSAGES = {literal(chats.messages or 'messages')}  # the field of a row",
            f"TRAIN_ON = {literal(chats.train_on)}  # of the assistant's messages",
            f"ROWS = {literal(chats.count)}{'' if chats.count else '  # all'}",
            f"BATCH = {literal(source.batch)}{origin(plan, stage, 'batch')}",
            MARK,
            "async def train(steps: int, metrics: str, data: str) -> None:",
            *opened(stage, "train"),
            "    renderer = get_renderer(RENDERER, tokenizer)",
            *kept(stage),
            "    chats = read_chats(data, MESSAGES, ROWS)",
            "    examples = [rendered(renderer, chat, TRAIN_ON) for chat in chats]",
            "    for step in range(1, steps + 1):",
            "        numbers = examples_of_step(SEED, STAGE, len(examples), BATCH, step)",
            "        batch = [one for number in numbers for one in examples[number]]",
            "        data_of_step = [imitated(*one) for one in batch]",
            "        # Submitted together, so that the service does both in one go.",
            '        gradient = training.forward_backward(data_of_step, "cross_entropy")',
            *updated(stage, 8),
            "        usage.trained += sum(len(tokens) - 1 for tokens, _ in batch)",
            "        learnt = sum(sum(weights[1:]) for _, weights in batch)",
            '        measured = {"loss/mean": loss / learnt, "loss/sum": loss}',
            "        report(metrics, step, steps, **measured)",
            *ended(stage),
            *main(
                f"    data = Path(__file__).parent / {literal(data)}",
                '    parser.add_argument("--data", default=str(data))',
            ),
        ]
    )
