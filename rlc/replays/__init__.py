"""Steps of a run replayed: what the same episodes teach under another objective.

`recorded` reads a step as its nodes had it, `changes` makes another objective of ``--set``, and
`outcomes` computes both with the runtime's own functions. `step` puts them side by side in a
`record`, `gradients` asks the weights, `bisection` finds a step by its metrics, and `texts` shows
it all.
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from rlc.replays.step import *
    from rlc.replays.texts import *
else:
    from rlc.doors import door

    __getattr__ = door(
        __name__,
        """
        step: replay_step
        texts: Replay
        """,
    )
