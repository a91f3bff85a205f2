"""Games of several seats: TextArena's, and the user's own.

Read ``game`` first: what a game is, and how it becomes an episode of moves. ``textarena`` makes the
library's. `rlc.runtime.rollouts.games` gives each seat an episode of its own, or an opponent.
"""
