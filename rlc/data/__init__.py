"""Data that recipes name: rows of files, chats, graders, functions of the user's own. It knows
no environments or models, so that `rlc check` reads data as a run does. All raise DataError."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from rlc.data.about import *
    from rlc.data.calls import *
    from rlc.data.chats import *
    from rlc.data.code import *
    from rlc.data.commands import *
    from rlc.data.digests import *
    from rlc.data.errors import *
    from rlc.data.examples import *
    from rlc.data.functions.called import *
    from rlc.data.functions.samples import *
    from rlc.data.grading.countdown import *
    from rlc.data.grading.graders import *
    from rlc.data.grading.math_equivalence import *
    from rlc.data.grading.panel import *
    from rlc.data.grading.rewards import *
    from rlc.data.grading.steps import *
    from rlc.data.grading.tasksets import *
    from rlc.data.grading.verdicts import *
    from rlc.data.harbor import *
    from rlc.data.journal import *
    from rlc.data.messages import *
    from rlc.data.problems import *
    from rlc.data.reading import *
    from rlc.data.rows import *
    from rlc.data.splits import *
    from rlc.data.texts import *
else:
    from rlc.doors import door

    __getattr__ = door(
        __name__,
        """
        about: TaskFacts about_row
        calls: Code CodeKind PLAYER_SEES SEES module_of_package
        chats: Chat REPLIES read_chat read_pair read_prompt read_solved
        code: called explained exports_instead forget_code lacking lacks load_attribute load_module
            module_file parameter_names require_fits returned_numbers returns_text search_beside
            source_when_imported
            signature_of written_signature
        commands: CONTAINERS is_command server_command
        digests: changed_files data_files
        errors: CodeError DataError FilePlace PackageMissingError at_place
        examples: Comparison ComparisonError LabelledReply PROMPTS compares hashed kept
            rating_columns read_comparison read_labelled read_ratings reader_of repeats
        functions.called: AdvantageFunction ChoiceFunction WeightsFunction
        functions.samples: PlayedEpisode SampleBatch
        grading.countdown: expression_for
        grading.graders: Grader TRIED boxed completed final_answer is_right marked_answer
            require_gradable tagged wrongly_graded
        grading.math_equivalence: SubprocessPool serve
        grading.panel: Asked ExaminedReward PanelTask UnearnedReply examined literals_of
            may_end_process panel_result
        grading.rewards: ANSWER_FIELDS CodeTrial Messages MisnamedError OWN OwnFunction Reward
            RewardError TRIED_OWN
        grading.steps: STEPS Steps as_number joined_steps read_steps step_rewards
        grading.tasksets: NOTHING SOLUTION is_taskset taskset_faults
        grading.verdicts: question_fault read_better read_ranking read_scores reason_of
            shortened shortest_verdict
        harbor: HarborTask harbor_tasks
        journal: SCHEMA best_key meta saved
        messages: Message MessageError transcript
        problems: ListedProblems Row permutation problem_set rows_in
        reading: FileRows Reader
        rows: DataRow FieldError Holds field_fault parts_of require_field rows_of
        splits: NoSplitError Part cut_at position rows_of_split said
        texts: Criterion Rubric judge_question parsed_template read_rubric read_template read_text
            row_criteria rubric_text text_of untagged
        """,
    )
