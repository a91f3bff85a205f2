"""Models in use: opened by name, talked to, sampled from, and written out as files.

``named`` says what a name stands for, ``model`` answers chats and is what Python programs use,
``served`` answers requests of other programs, ``export`` writes files for them.
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from rlc.models.evaluation import *
    from rlc.models.export import *
    from rlc.models.model import *
    from rlc.models.named import *
    from rlc.models.served import *
else:
    from rlc.doors import door

    __getattr__ = door(
        __name__,
        """
        evaluation: evaluation_of evaluation_plan paired_results
        export: CARD export_model publish
        model: TrainedSummary run_plan
        named: named_model
        served: serving_models
        """,
    )
