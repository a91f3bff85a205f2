"""The plan executed, on any service.

Read ``start`` (from a plan or a run folder to a job), ``job`` (its stages), ``loop`` (the steps of
one stage) and ``graph`` (the nodes of a step), in this order. ``stages/`` has a function for each
kind of node; they use ``rollouts/`` to play episodes, ``players/`` to have them played by other
processes, and ``updates/`` to train on them.
``service_guard`` and ``remote`` stand before the service, ``journal/`` and ``trackers`` write.
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from rlc.runtime.asked_models import *
    from rlc.runtime.auxiliary import *
    from rlc.runtime.concurrency import *
    from rlc.runtime.job import *
    from rlc.runtime.journal.database import *
    from rlc.runtime.journal.episodes import *
    from rlc.runtime.journal.folder import *
    from rlc.runtime.journal.metrics import *
    from rlc.runtime.journal.runs import *
    from rlc.runtime.records import *
    from rlc.runtime.reuse.storage import *
    from rlc.runtime.reuse.store import *
    from rlc.runtime.reuse.take import *
    from rlc.runtime.rollouts.credit import *
    from rlc.runtime.rollouts.groups import *
    from rlc.runtime.rollouts.player import *
    from rlc.runtime.rollouts.tasks import *
    from rlc.runtime.rollouts.tokens import Scores as Scores
    from rlc.runtime.rollouts.tokens import TokenPrefix as TokenPrefix
    from rlc.runtime.stages.computation import *
    from rlc.runtime.stages.evaluation import *
    from rlc.runtime.stages.few_episodes import *
    from rlc.runtime.start import *
    from rlc.runtime.summary import *
    from rlc.runtime.updates.datums import *
    from rlc.runtime.updates.optimizer import *
    from rlc.runtime.updates.scorers import *
    from rlc.runtime.weights import *
else:
    from rlc.doors import door

    __getattr__ = door(
        __name__,
        """
        asked_models: AskedModels models_alone
        auxiliary: chat_model
        concurrency: in_thread
        job: Job
        journal.database: Journal NOTHING RecordedUsage StoredStep
        journal.episodes: EpisodeHead EpisodeIndex EpisodeKey SequenceTokens TOKENS_FILE TokenIndex
            USUAL episode_of
        journal.folder: RunFolder command examples_file is_locked locked made_and_locked new_folder
        journal.metrics: COMPARISONS_FILE METRICS_FILE ROLLOUTS_FILE Record SERVICE_FILE
            TIMELINE_FILE evaluation_results failures_by_cause is_number parse_line read_lines
            read_metrics watched_so_far
        journal.runs: GONE NOTHING_LEARNT RunInfo StageInfo is_run judged_after list_runs read_run
            version_of what_differs
        reuse.storage: Storage StoredItem stored
        reuse.store: Reuse ReusedStage find_reuse require_roots whole_stages
        reuse.take: begin_with
        records: FAILURES_FILE Failure Rollout RunError TrainedSample Turn Usage grouped
            read_failures
        rollouts.credit: episode_credit
        rollouts.groups: build_envs play_task
        rollouts.player: Attempt Player close_envs
        rollouts.tasks: Task TaskStream
        rollouts.tokens: Scores TokenPrefix
        stages.computation: CreditedRollout StepComputation TrainBatch trainable_rollouts
        stages.evaluation: task_metrics
        stages.few_episodes: AGREEMENT
        start: ExpectationError connect_run open_run play_few_episodes require_prices
            require_runnable resume resume_run run_plan
        updates.datums: Minibatch TrainingDatum
        updates.optimizer: drift_metrics finish_updates open_loss submit_gradients
            with_values_over
        updates.scorers: score_metrics
        summary: Observer StageSummary Summary verdict window_label window_mean
        weights: fresh_weights open_sampler
        """,
    )
