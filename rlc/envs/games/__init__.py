"""Games of several seats: TextArena's, and those of one's own.

Read ``game`` first: what a game is, and how it becomes an episode of moves. ``textarena`` makes the
library's. ``matches`` gives each seat an episode of its own, or to an opponent.
"""
