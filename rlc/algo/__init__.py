"""The mathematics of post-training: pure functions on float64 arrays.

Read ``scheme`` first: what an advantage scheme is. ``advantages`` applies one to ``episodes``
(columns of rewards to returns, then statistics over scopes); ``shaping`` has rewards that compare
the episodes of a group. ``expressions`` is the language of formulas: those of a recipe, and those
that come with rlc (``texts``). ``served`` has the losses of the service, ``preferences`` those over
preferences. ``aggregate`` has the weights of tokens, ``schedules`` the learning rates.
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from rlc.algo.advantages import *
    from rlc.algo.aggregate import *
    from rlc.algo.columns import *
    from rlc.algo.episodes import *
    from rlc.algo.errors import *
    from rlc.algo.expressions.behaviour import *
    from rlc.algo.expressions.build import *
    from rlc.algo.expressions.evaluate import *
    from rlc.algo.expressions.formula import *
    from rlc.algo.expressions.inputs import *
    from rlc.algo.expressions.interpret import *
    from rlc.algo.expressions.known import *
    from rlc.algo.expressions.program import *
    from rlc.algo.expressions.python import *
    from rlc.algo.expressions.ranges import *
    from rlc.algo.expressions.reader import *
    from rlc.algo.expressions.vocabulary import *
    from rlc.algo.kl import *
    from rlc.algo.order import *
    from rlc.algo.paired.student import *
    from rlc.algo.paired.verdicts import *
    from rlc.algo.preferences import *
    from rlc.algo.rewards import *
    from rlc.algo.schedules import *
    from rlc.algo.scheme import *
    from rlc.algo.served import *
    from rlc.algo.shaping import *
    from rlc.algo.texts import *
else:
    from rlc.doors import door

    __getattr__ = door(
        __name__,
        """
        advantages: compute_advantages
        aggregate: SHARED_BY aggregate_weights
        episodes: Advantages Episodes Floats Parts renewed
        columns: advantage_functions pair_functions reward_function unwritten
        errors: AlgorithmError
        expressions.behaviour: degree direction overflows_at ratio_is_bounded unbounded
        expressions.build: validate
        expressions.evaluate: batch_values changed_share loss_and_grad preference_loss_and_grad
        expressions.formula: derivative_formula formula
        expressions.inputs: Input RATING_INPUTS
        expressions.interpret: require_inputs shaped_reward
        expressions.known: Candidate KnownLoss known_loss known_preference
        expressions.reader: ExpressionReader OVER
        expressions.program: ExpressionError INPUT Kind NUMBER Program
        expressions.python: FIRST MASK TorchFunction WEIGHT torch_function
        expressions.ranges: UndefinedPart ranges
        expressions.vocabulary: INPUTS IN_TASK LOGQ OPERATIONS Operation PROCESS SCOPES SCORED SHARE
            after_batch compares differentiable differs_in_group functions_of is_reward needs_batch
            reads_trainer trained
        kl: ClipRange clip_fraction drift forward_kl kl_penalty top_k_shares
        order: draw sampled_examples
        paired.student: effect_seen
        paired.verdicts: LIKELY bounds holm looks pairs_needed sample tails_so_far
        preferences: LIKELIHOODS OF_SIDES preference_candidates preference_derivatives
            preference_formula preference_lines preference_program
        rewards: outweighing pass_at_k reduce_rewards reward_shape
        schedules: learning_rate
        scheme: AdvantageScheme AdvantageStep Baseline CONDITIONS Clip Returns RunningBaseline Scale
            WeightedSum divides_by_mean has_running keeps_single no_advantage reads running_decays
            scheme_of scheme_of_function scheme_of_returns scope_of statistics with_step
        served: LOSSES RATIO_MASK SAMPLED ServedLoss builtin_loss_and_grad
        shaping: shaped_rewards
        texts: FormulaText formula_texts
        """,
    )
