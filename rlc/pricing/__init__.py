"""Tokens, sizes, cost and duration of a plan."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from rlc.pricing.asked import *
    from rlc.pricing.cost import *
    from rlc.pricing.measured import *
    from rlc.pricing.quantities import *
    from rlc.pricing.shapes import *
    from rlc.pricing.tokens import *
else:
    from rlc.doors import door

    __getattr__ = door(
        __name__,
        """
        asked: endpoint_dollars question_tokens
        cost: KINDS Money STATE_PRICES StageCost SweepCost bill_of bill_rows plan_cost stage_cost
            stage_costs sweep_cost total_cost unknown_prices
        measured: DriftRange LENGTH_DRIFT MeasuredEpisodes SIGNAL_DRIFT Seen
            measured_sentences needs_signal seen_latencies
        quantities: ESTIMATES EstimatedQuantities JOB judged_before values_of
        shapes: LEVELS Level endless extends_prefix rollout_shape text_tokens tokenizer_at_hand
        tokens: Tokens heldout_count shares
        """,
    )
