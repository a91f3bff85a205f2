"""What is going to be done: records, in which every value is decided.

Read ``records`` first, then ``environments``. ``graph`` builds the job graph, ``codec`` has JSON
and the content hash, ``leaves`` and ``differences`` go through a plan by dotted path, and ``units``
writes its values.
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from rlc.plan.codec import *
    from rlc.plan.differences import *
    from rlc.plan.environments import *
    from rlc.plan.expectations import *
    from rlc.plan.graph import *
    from rlc.plan.parts import *
    from rlc.plan.paths import *
    from rlc.plan.records import *
    from rlc.plan.sources import *
    from rlc.plan.stages import *
    from rlc.plan.sweeps import *
    from rlc.plan.units import *
else:
    from rlc.doors import door

    __getattr__ = door(
        __name__,
        """
        codec: LATE OLDER PlanFormatError UNIONS content_hash expectations_from_dict
            plan_from_dict plan_hash plan_to_dict provenance_hash word_of
        differences: Change ComparedValue WrittenValue change_lines changes_between
            difference_lines differing_paths plan_values value_changes
        environments: ANY AgentPlan AnyJudge Asked ComparerPlan EndpointPlan EnvPlan GraderPlan
            FORM_TRIES JudgePlan JudgingPlan MAX_TURNS OF_EACH_ENVIRONMENT OUTCOMES PastPlan
            PlayPlan RewardModelPlan RewardPlan RolloutsPlan SOLVED STEP_TIMEOUT ScriptPlan
            StepPlan TEXT_FILE is_text_file
        expectations: COMPARES ExpectationPlan ExpectationResult Over QuantityPlan TermPlan Unit
            amount shown
        graph: Graph GraphEdge GraphNode IN_ORDER SCORERS barriers build_graph
            compares_in_groups evaluations_of in_parts takes_what_is_ready
        parts: AdamPlan AggregatePlan BatchPlan BudgetPlan DeadlinesPlan FailurePlan GiveUpPlan
            KeepPlan KlGuardPlan KlPlan LOCAL LossPlan MetricPlan ModelPlan ModelState OverlapPlan
            PlayersPlan PreferenceLossPlan PricePlan Sampling SamplingPlan SavePlan SchedulePlan
            TINKER is_hosted TeacherPlan TrackPlan teacher_of
        paths: CHECKPOINTS_FOLDER HUB_DATASET JOURNAL_FILE PLAN_FILE RUNS_FOLDER RUN_WEIGHTS
            SAVED_SET SAVED_SPLITS WHERE_PATHS_START file_part hub_dataset is_saved_set is_there
            located rebased
        records: DataFile LONGEST_TTL Plan RECOGNISED REHEARSAL SCHEMA_VERSION SHORTEST_TTL
        sources: AnyData BuilderData Chats DATA Demonstrations EpisodeData FIELD FileData
            LabelledReplies Pairs PreferredPairs ReadData RowData Rows Samples Split base_split
            has_rows is_read
        stages: Evaluation FromData LabelledPreference Likelihood OBJECTIVES PairwisePreference
            PolicyGradient PreferenceLoss Rollouts Source StagePlan Table Training is_evaluation
            is_training stage_of
        sweeps: AxisPlan ClaimPlan ClaimTerm Configuration MeasurePlan RangePlan SearchPlan
            SweepPlan Trial metric_label metric_word values_text
        units: SECONDS UNKNOWN elapsed in_dollars show shown_value unit_of
        """,
    )
