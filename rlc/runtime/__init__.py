"""The plan executed, on any service.

Read ``start`` (from a plan or a run folder to a job), ``job`` (its stages), ``loop`` (the steps of
one stage) and ``graph`` (the nodes of a step), in this order. ``stages/`` has a function for each
kind of node; they use ``rollouts/`` to play episodes and ``updates/`` to train on them. ``guard/``
keeps a run within its limits, ``journal/`` and ``trackers.py`` writes down what it does.
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from rlc.runtime.auxiliary import *
    from rlc.runtime.concurrency import *
    from rlc.runtime.failures import *
    from rlc.runtime.guard.limits import *
    from rlc.runtime.job import *
    from rlc.runtime.journal.database import *
    from rlc.runtime.journal.differing import *
    from rlc.runtime.journal.episode_index import *
    from rlc.runtime.journal.folder import *
    from rlc.runtime.journal.history import *
    from rlc.runtime.journal.locks import *
    from rlc.runtime.journal.metrics import *
    from rlc.runtime.journal.runs import *
    from rlc.runtime.journal.timeline import *
    from rlc.runtime.journal.tokens import *
    from rlc.runtime.observer import *
    from rlc.runtime.preflight import *
    from rlc.runtime.records import *
    from rlc.runtime.stages.examples import *
    from rlc.runtime.start import *
    from rlc.runtime.summary import *
    from rlc.runtime.weights import *
else:
    from rlc.doors import door

    __getattr__ = door(
        __name__,
        """
        auxiliary: chat_model
        concurrency: in_thread
        failures: FAILURES_FILE Failure read_failures
        guard.limits: NOTHING_LEARNT
        job: Job
        journal.database: Journal NOTHING RecordedUsage
        journal.differing: what_differs
        journal.episode_index: EpisodeHead EpisodeIndex episode_of
        journal.folder: RunFolder
        journal.history: Record is_number parse_line read_lines read_metrics
        journal.locks: command is_locked locked made_and_locked new_folder
        journal.metrics: COMPARISONS_FILE METRICS_FILE ROLLOUTS_FILE evaluation_results
            failures_by_cause measure
        journal.runs: GONE RunInfo StageInfo is_run list_runs read_run version_of
        journal.timeline: TIMELINE_FILE
        journal.tokens: EpisodeKey SequenceTokens TOKENS_FILE TokenIndex USUAL
        observer: Observer
        preflight: require_runnable
        records: Rollout RunError TrainedSample Turn
        stages.examples: examples_file
        start: ExpectationError connect_run open_run resume resume_run run_plan
        summary: StageSummary Summary verdict window_label window_mean
        weights: open_sampler
        """,
    )
