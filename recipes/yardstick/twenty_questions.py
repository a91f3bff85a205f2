"""Twenty questions, for `twenty_questions.rl`: a player asks, and an answerer knows the word."""

import random
from importlib.resources import files

RULES = (
    "We play twenty questions. I have a word in mind, a noun. Ask me questions of one line that I "
    "can answer with yes or no. When you know the word, write a line of the form 'Guess: <word>', "
    "without brackets or article. You have 20 lines in all."
)
ANSWERS = (
    "You answer in a game of twenty questions, and say only 'yes' or 'no'. The secret word is "
    "{word}. To 'Guess: <word>' say 'yes' only if it is exactly that word."
)
MOST = 20


def words(held_out):
    """The nouns of tinker-cookbook, or the fifth of them that is kept for a test."""
    listed = files("tinker_cookbook.recipes.multiplayer_rl.twenty_questions")
    nouns = (listed / "common_english_nouns.txt").read_text("utf-8").split()
    random.Random(0).shuffle(nouns)
    fifth = len(nouns) // 5
    return nouns[-fifth:] if held_out else nouns[:-fifth]


class TwentyQuestions:
    def __init__(self, seed, held_out=False):
        self.word = random.Random(seed).choice(words(held_out))
        self.said, self.asked, self.seat, self.rewards = "", 0, 0, (0.0, 0.0)

    def observe(self, seat):
        if seat == 0:
            return RULES if self.asked == 0 else self.said
        rules = f"{ANSWERS.format(word=self.word)}\n\n" if self.asked == 1 else ""
        return rules + self.said

    def step(self, seat, action):
        self.said, self.seat = action, 1 - seat
        if seat == 0:
            self.asked += 1
            guess = action.partition("Guess: ")[2].strip().lower()
            won = action.startswith("Guess: ") and guess == self.word.lower()
            if won or self.asked == MOST:
                self.seat, self.rewards = None, (float(won), 0.0)
