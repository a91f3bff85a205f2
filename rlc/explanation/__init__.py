"""A plan as text and as JSON: what people read, and paste into a pull request."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from rlc.explanation.diff import *
    from rlc.explanation.entries import *
    from rlc.explanation.full import *
    from rlc.explanation.job import *
    from rlc.explanation.layout import *
    from rlc.explanation.pull_request import *
    from rlc.explanation.schemes import *
    from rlc.explanation.services import *
    from rlc.explanation.sizes import *
    from rlc.explanation.stages import *
    from rlc.explanation.summary import *
    from rlc.explanation.sweeps import *
    from rlc.explanation.values import *
else:
    from rlc.doors import door

    __getattr__ = door(
        __name__,
        """
        diff: diff_dict diff_plans diff_text
        entries: default_of formulas_of meaning_of type_of
        full: explain_dict explain_html explain_markdown explain_text text_html
        job: Format edge_notes render_graph
        layout: count dollars
        pull_request: RecipeChange recipe_change
        services: offers_dict offers_text
        sizes: price
        stages: formula_sections loss_formula
        summary: summary_text
        sweeps: sweep_lines
        values: ValueRow value_rows
        """,
    )
