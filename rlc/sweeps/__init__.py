"""Sweeps as they run: many runs of one job under one budget, compared.

To read it: `run`, which goes through the trials; `search` and `halving`, which choose them, with
Optuna behind; `shared`, for stages that several trials have in common; `journal` and `folder`, what
is written down; `results`, what came out.
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from rlc.sweeps.journal import *
    from rlc.sweeps.observer import *
    from rlc.sweeps.read import *
    from rlc.sweeps.results import *
    from rlc.sweeps.run import *
    from rlc.sweeps.start import *
else:
    from rlc.doors import door

    __getattr__ = door(
        __name__,
        """
        journal: SWEEP_FILE TrialRecord
        observer: SweepObserver
        read: SweepInfo TRIALS is_sweep read_sweep runs_in
        results: ConfigurationResult SweepSummary ranked
        run: SweepRun
        start: compiled_again open_sweep reopen_sweep run_to_end
        """,
    )
