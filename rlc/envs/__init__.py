"""Environments made playable.

Read ``base`` first: the interfaces that the runtime plays, and the simpler ones that block.
``build`` makes an environment of a plan, or finds what is wrong with it before a run. Each system
has a module or a folder; ``workers`` keeps blocking calls off the event loop.
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from rlc.envs.agents import *
    from rlc.envs.base import *
    from rlc.envs.build import *
    from rlc.envs.cookbook.examples import *
    from rlc.envs.deadlines import *
    from rlc.envs.games import *
    from rlc.envs.gem.oracles import *
    from rlc.envs.judges.judging import *
    from rlc.envs.judges.solver_judge import *
    from rlc.envs.openreward_client import *
    from rlc.envs.responders import *
    from rlc.envs.workers.processes import *
else:
    from rlc.doors import door

    __getattr__ = door(
        __name__,
        """
        agents: AgentError
        base: AsyncEpisode AsyncSource EnvError JoiningEpisode Observation PolicyReply
            PolicyRequest RunningEpisode TaskKey validated
        build: PlayableEnv begins build_env solution_faults source_problems
        cookbook.examples: builder_examples
        deadlines: Deadline all_of first_cause place waiting
        games: GameView Move OpponentProgram
        gem.oracles: Oracle find_oracle
        judges.judging: ComparisonVerdict JudgedReward rewarded
        judges.solver_judge: JUDGE SOLVER SolverJudge
        openreward_client: sdk
        workers.processes: CLUSTER
        responders: EndpointResponder ModelReply ModelRequest Responder Responders
        """,
    )
