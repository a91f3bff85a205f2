"""A debate about a question with two answers: a game of three seats, for `debate.rl`."""

from __future__ import annotations

import json
import random
from pathlib import Path


class Debate:
    """Two debaters argue in turn, each for one of the answers, and a judge says which is right. A
    debater wins by convincing the judge, the judge by being right."""

    def __init__(self, seed: int, questions: str, rounds: int = 2) -> None:
        with (Path(__file__).parent / questions).open(encoding="utf-8") as file:
            rows = [json.loads(line) for line in file]
        drawn = random.Random(seed)  # not the global generator
        row = drawn.choice(rows)
        self.question: str = row["question"]
        self.answers = drawn.sample([row["right"], row["wrong"]], 2)
        self.right = self.answers.index(row["right"])
        self.rounds = rounds
        self.arguments = list[str]()
        self.seat: int | None = 0
        self.rewards = (0.0, 0.0, 0.0)
        self.winners: list[int] = []
        self.metrics: list[dict[str, float]] = [{}, {}, {}]

    def observe(self, seat: int) -> str:
        said = "\n".join(
            f"Debater {1 + number % 2}: {text}" for number, text in enumerate(self.arguments)
        )
        asked = f"Question: {self.question}\n1: {self.answers[0]}\n2: {self.answers[1]}\n{said}\n"
        if seat == 2:
            return f"{asked}You are the judge. Which answer is right? Reply with 1 or 2 alone."
        return (
            f"{asked}You are debater {seat + 1}: convince the judge in two sentences that answer "
            f"{seat + 1} is right."
        )

    def step(self, seat: int, action: str) -> None:
        if seat < 2:
            self.arguments.append(action.strip())
            over = len(self.arguments) == 2 * self.rounds
            self.seat = 2 if over else 1 - seat
            return
        self.seat = None
        picked = {"1": 0, "2": 1}.get(action.strip().rstrip(".")[-1:])
        if picked is None:  # nobody has convinced the judge
            return
        right = float(picked == self.right)
        self.rewards = (1.0 if picked == 0 else -1.0, 1.0 if picked == 1 else -1.0, right)
        self.winners = [picked, 2] if right else [picked]
        self.metrics[2] = {"correct": right}
