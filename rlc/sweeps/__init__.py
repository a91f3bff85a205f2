"""Sweeps as they run: many runs of one job under one budget, compared.

To read it: ``run``, which goes through the trials; ``search``, which chooses them, with Optuna
behind; ``journal`` and ``folder``, for what is written down and came out; ``claims``, for the
verdicts.
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from rlc.sweeps.claims import *
    from rlc.sweeps.folder import *
    from rlc.sweeps.journal import *
    from rlc.sweeps.run import *
    from rlc.sweeps.start import *
    from rlc.sweeps.trials import *
else:
    from rlc.doors import door

    __getattr__ = door(
        __name__,
        """
        claims: ClaimResult
        folder: SweepInfo TRIALS is_sweep read_sweep runs_in
        journal: ConfigurationResult SWEEP_FILE SweepObserver SweepSummary ranked summary_dict
        run: SweepRun
        start: compiled_again open_sweep reopen_sweep run_to_end
        trials: TrialRecord
        """,
    )
