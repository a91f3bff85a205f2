"""Players that know the answer, for some games of GEM: each reads the observations of an episode so
far and returns the content of the box."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from itertools import permutations
from operator import eq

from rlc.catalog import env_facts
from rlc.plan import EnvPlan

Board = list[list[int]]
Oracle = Callable[[Sequence[str]], str]  # from the observations of an episode so far to a reply


def find_oracle(env: EnvPlan) -> Oracle | None:
    """Return the player that knows the answers of an environment; None if there is none."""
    if not env_facts(env).oracle:
        return None
    answer = ORACLES[env.id.partition("-v")[0]]
    return lambda texts: boxed(answer(texts))


def boxed(answer: str) -> str:
    return f"\\boxed{{{answer}}}"


def number_range(opening: str) -> tuple[int, int]:
    low, high = _integers(r"between (\d+) and (\d+)", opening)[0]
    return low, high


def binary_search(texts: Sequence[str]) -> str:
    """Return the middle of the numbers that are left; needs at most ⌈log₂(n + 1)⌉ guesses."""
    low, high = number_range(texts[0])
    for (guess,) in _integers(r"higher than (\d+)", "\n".join(texts)):
        low = max(low, guess + 1)
    for (guess,) in _integers(r"lower than (\d+)", "\n".join(texts)):
        high = min(high, guess - 1)
    return str((low + high) // 2)


def spell_backward(texts: Sequence[str]) -> str:
    return word_to_spell(texts[0])[::-1]


def word_to_spell(question: str) -> str:
    return question.split("): ")[1].split("\n")[0]


def consistent_code(texts: Sequence[str]) -> str:
    codes = possible_codes(texts)
    return " ".join(map(str, codes[len(codes) // 2]))


def possible_codes(texts: Sequence[str]) -> list[tuple[int, ...]]:
    """Return the codes without repeated digits that agree with every mark so far."""
    ((length, _),) = _integers(r"secret (\d+) digit code within (\d+)", texts[0])
    ((low, high),) = _integers(r"digits from (\d+) to (\d+)", texts[0])
    codes = list(permutations(range(low, high + 1), length))
    marks = r"\[([\d, ]+)\]\. This guess receives (\d+) black peg\(s\) and (\d+) white"
    for digits, black, white in re.findall(marks, "\n".join(texts)):
        guess = tuple(map(int, digits.split(",")))
        places, digits_found = int(black), int(black) + int(white)
        codes = [
            code
            for code in codes
            if sum(map(eq, guess, code)) == places and len({*guess} & {*code}) == digits_found
        ]
    return codes


def sudoku_move(texts: Sequence[str]) -> str:
    """Fill the first cell that only one digit fits; failing that, the first empty cell, solved."""
    board = read_board(texts[-1])
    cells = empty_cells(board)
    row, column = next((c for c in cells if len(fitting_digits(board, *c)) == 1), cells[0])
    digits = fitting_digits(board, row, column)
    if len(digits) != 1:
        solution = _solution([list(row) for row in board])
        if solution is None:
            raise ValueError("the board has no solution")
        digits = [solution[row][column]]
    return f"{row + 1} {column + 1} {digits[0]}"


def read_board(text: str) -> Board:
    """Return the last board drawn in a text, row by row; 0 is an empty cell."""
    drawn = text[text.rindex("current board layout") :]
    rows = re.findall(r"^R\d+ ([ .\d|]+)$", drawn, re.MULTILINE)
    return [[int(cell.replace(".", "0")) for cell in re.findall(r"[.\d]", row)] for row in rows]


def empty_cells(board: Board) -> list[tuple[int, int]]:
    """Return (row, column) of each empty cell, from 0, in reading order."""
    return [(r, c) for r, row in enumerate(board) for c, digit in enumerate(row) if not digit]


def fitting_digits(board: Board, row: int, column: int) -> list[int]:
    """Return the digits that no row, column or box of this cell has yet."""
    size = len(board)
    box = int(size**0.5)
    top, left = row // box * box, column // box * box
    held = {*board[row], *(line[column] for line in board)}
    held.update(digit for line in board[top : top + box] for digit in line[left : left + box])
    return [digit for digit in range(1, size + 1) if digit not in held]


def _solution(board: Board) -> Board | None:
    cells = empty_cells(board)
    if not cells:
        return board
    row, column = cells[0]
    for digit in fitting_digits(board, row, column):
        board[row][column] = digit
        if solution := _solution(board):
            return solution
    board[row][column] = 0
    return None


def _integers(pattern: str, text: str) -> list[tuple[int, ...]]:
    found = [re.findall(r"\d+", match[0]) for match in re.finditer(pattern, text)]
    return [tuple(map(int, digits)) for digits in found]


ORACLES: dict[str, Oracle] = {
    "game:GuessTheNumber": binary_search,
    "game:Mastermind": consistent_code,
    "game:Sudoku": sudoku_move,
    "rg:spell_backward": spell_backward,
}
