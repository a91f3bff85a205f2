"""Tasks of the rewards beside this file, by the name that each reward says it is for."""

from __future__ import annotations

from typing import Any

_CHOICES = "\nA) {}\nB) {}\nC) {}\nD) {}\nAnswer with the letter."

ROWS: dict[str, list[dict[str, Any]]] = {
    "sums": [
        {"prompt": "What is 17 + 25?", "answer": "42"},
        {"prompt": "Tom has 12 apples and eats 3. How many are left?", "answer": "9"},
        {"prompt": "What is 8 * 16?", "answer": "128"},
        {"prompt": "A train goes 60 km in one hour. How far in 4 hours?", "answer": "240"},
    ],
    "choices": [
        {
            "prompt": "Which planet is the largest?"
            + _CHOICES.format("Mars", "Jupiter", "Venus", "Earth"),
            "answer": "B",
        },
        {
            "prompt": "What is the boiling point of water at sea level?"
            + _CHOICES.format("100 °C", "90 °C", "80 °C", "120 °C"),
            "answer": "A",
        },
        {
            "prompt": "Who wrote Hamlet?"
            + _CHOICES.format("Goethe", "Dante", "Homer", "Shakespeare"),
            "answer": "D",
        },
        {
            "prompt": "Which gas do plants take in?"
            + _CHOICES.format("oxygen", "nitrogen", "carbon dioxide", "helium"),
            "answer": "C",
        },
    ],
    "words": [
        {"prompt": "What is the capital of France?", "answer": "Paris"},
        {"prompt": "What is the capital of Japan?", "answer": "Tokyo"},
        {"prompt": "What is the capital of Kenya?", "answer": "Nairobi"},
        {"prompt": "What is the capital of Peru?", "answer": "Lima"},
    ],
    "yesno": [
        {"prompt": "Is 17 a prime number? Answer yes or no.", "answer": "yes"},
        {"prompt": "Is the sun a planet? Answer yes or no.", "answer": "no"},
        {"prompt": "Is ice lighter than water? Answer yes or no.", "answer": "yes"},
        {"prompt": "Is 21 a prime number? Answer yes or no.", "answer": "no"},
    ],
    "code": [
        {
            "prompt": "Write a Python function add(a, b) that returns the sum.",
            "tests": ["assert add(1, 2) == 3", "assert add(-1, 1) == 0"],
            "solution": "def add(a, b):\n    return a + b",
        },
        {
            "prompt": "Write a Python function rev(s) that reverses a text.",
            "tests": ["assert rev('abc') == 'cba'", "assert rev('') == ''"],
            "solution": "def rev(s):\n    return s[::-1]",
        },
        {
            "prompt": "Write a Python function evens(n) that lists the even numbers below n.",
            "tests": ["assert evens(5) == [0, 2, 4]", "assert evens(0) == []"],
            "solution": "def evens(n):\n    return [i for i in range(n) if i % 2 == 0]",
        },
    ],
    "json": [
        {
            "prompt": 'Extract name and age as JSON: "Ann is 31."',
            "answer": '{"name": "Ann", "age": 31}',
        },
        {
            "prompt": 'Extract name and age as JSON: "Bob, 45 years old, is a cook."',
            "answer": '{"name": "Bob", "age": 45}',
        },
        {
            "prompt": 'Extract name and age as JSON: "At 19, Cid won."',
            "answer": '{"name": "Cid", "age": 19}',
        },
    ],
    "summaries": [
        {
            "prompt": "Summarise: The council met on Monday. It decided to build a new bridge over "
            "the river, because the old one is unsafe. The work begins in May.",
            "answer": "The council will build a new bridge, as the old one is unsafe; work begins "
            "in May.",
        },
        {
            "prompt": "Summarise: A storm hit the coast last night. Two houses lost their roofs, "
            "and a ship had to wait outside the harbour. Nobody was hurt.",
            "answer": "A storm at the coast damaged two houses and delayed a ship; nobody was "
            "hurt.",
        },
        {
            "prompt": "Summarise: The museum opens its new wing on Friday. It shows paintings of "
            "the last century. Entry is free for children.",
            "answer": "From Friday the museum's new wing shows paintings of the last century, free "
            "for children.",
        },
    ],
    "keywords": [
        {"prompt": "Write a sentence about a dog that uses the word park.", "keyword": "park"},
        {"prompt": "Write a sentence about a cat that uses the word roof.", "keyword": "roof"},
        {"prompt": "Write a sentence about a bird that uses the word song.", "keyword": "song"},
    ],
    "countdown": [
        {
            "prompt": "Use 2, 3 and 4, each once, to make 14. Put it in <answer> tags.",
            "nums": [2, 3, 4],
            "target": 14,
            "answer": "2 + 3 * 4",
        },
        {
            "prompt": "Use 5, 6 and 7, each once, to make 23. Put it in <answer> tags.",
            "nums": [5, 6, 7],
            "target": 23,
            "answer": "5 * 6 - 7",
        },
        {
            "prompt": "Use 1, 8 and 9, each once, to make 18. Put it in <answer> tags.",
            "nums": [1, 8, 9],
            "target": 18,
            "answer": "1 + 8 + 9",
        },
    ],
    "fractions": [
        {"prompt": "What is 1/2 + 1/4?", "answer": "3/4"},
        {"prompt": "What is 1/3 of 2?", "answer": "2/3"},
        {"prompt": "What is 5/8 - 1/4?", "answer": "3/8"},
        {"prompt": "What is 7/2 - 1?", "answer": "5/2"},
    ],
    "sets": [
        {"prompt": "Name the primary colours, separated by commas.", "answer": "red, yellow, blue"},
        {"prompt": "Name the prime numbers below 8, separated by commas.", "answer": "2, 3, 5, 7"},
        {
            "prompt": "Name the Baltic states, separated by commas.",
            "answer": "Estonia, Latvia, Lithuania",
        },
    ],
}
