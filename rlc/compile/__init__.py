"""From a recipe to a plan."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from rlc.compile.earlier import *
    from rlc.compile.overrides import *
    from rlc.compile.recipe import *
    from rlc.compile.saved import *
    from rlc.compile.sweeps import *
    from rlc.compile.variants import *
else:
    from rlc.doors import door

    __getattr__ = door(
        __name__,
        """
        earlier: recipe_at
        overrides: WEIGHTS
        recipe: CompileResult check compile_source load
        saved: MadeFrom PlanFileError SavedPlan load_plan read_plan save_plan stale_lines
        sweeps: MOST_LISTED SAMPLED Sweep find_sweep number_text
        variants: ServiceMismatchError chosen_stages left_out on_service only rehearse_stage
        """,
    )
