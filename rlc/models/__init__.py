"""Models taken into use: opened by name, talked to, sampled from, and taken away as files.

``named`` says what a name stands for, ``opened`` answers chats, ``model`` is what Python programs
hold. ``export`` writes files for other programs, with ``merged`` and ``card``.
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from rlc.models.evaluation import *
    from rlc.models.export import *
    from rlc.models.named import *
    from rlc.models.served import *
    from rlc.models.trained import *
else:
    from rlc.doors import door

    __getattr__ = door(
        __name__,
        """
        evaluation: evaluation_plan
        export: CARD export_model publish
        named: named_model
        served: serving_models
        trained: TrainedSummary run_plan
        """,
    )
