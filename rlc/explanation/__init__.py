"""A plan as text and as JSON: what people read, and paste into a pull request."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from rlc.explanation.data import *
    from rlc.explanation.diff import *
    from rlc.explanation.entries import *
    from rlc.explanation.formulas.schemes import *
    from rlc.explanation.formulas.stages import *
    from rlc.explanation.job.graph import *
    from rlc.explanation.job.sweeps import *
    from rlc.explanation.layout import *
    from rlc.explanation.notebook import *
    from rlc.explanation.summary import *
    from rlc.explanation.text import *
    from rlc.explanation.values import *
else:
    from rlc.doors import door

    __getattr__ = door(
        __name__,
        """
        data: explain_dict
        diff: diff_dict diff_plans diff_text
        entries: default_of formulas_of meaning_of type_of
        formulas.schemes: scheme_formulas
        formulas.stages: formula_sections loss_formula
        job.graph: Format edge_notes render_graph
        job.sweeps: sweep_lines
        layout: count dollars
        notebook: explain_html explain_markdown text_html
        summary: summary_text
        text: explain_text
        values: ValueRow value_rows
        """,
    )
