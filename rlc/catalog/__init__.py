"""The catalogue: what the language knows, each thing declared once."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from rlc.catalog.aliases import *
    from rlc.catalog.builtins.advantages import *
    from rlc.catalog.builtins.frameworks import *
    from rlc.catalog.builtins.graders import *
    from rlc.catalog.builtins.losses import *
    from rlc.catalog.builtins.sources import *
    from rlc.catalog.builtins.stages import *
    from rlc.catalog.builtins.training import *
    from rlc.catalog.builtins.wrappers import *
    from rlc.catalog.declarations import *
    from rlc.catalog.environments import *
    from rlc.catalog.facts import *
    from rlc.catalog.index import *
    from rlc.catalog.kept.audits import *
    from rlc.catalog.keys import *
    from rlc.catalog.metrics import *
    from rlc.catalog.plan_files import *
    from rlc.catalog.providers import *
    from rlc.catalog.records import *
    from rlc.catalog.saved_weights import *
    from rlc.catalog.schema import *
    from rlc.catalog.search import *
    from rlc.catalog.settings import *
else:
    from rlc.doors import door

    __getattr__ = door(
        __name__,
        """
        aliases: EXPRESSIONS WORDS advice_for alias_of
        builtins.advantages: UNSUPPORTED
        builtins.frameworks: AGENT
        builtins.graders: FORMAT JUDGE_PROMPT finds_answers
        builtins.losses: LIKELIHOOD UNIT_RATIO service_loss
        builtins.sources: AS_THEY_COME COOKBOOK_BATCHES COOKBOOK_GROUP COOKBOOK_MODEL
            COOKBOOK_RENDERER
            FORMAT_COEF GRADER OPENREWARD_KEY UNDECIDED have_tasks_in_common
        builtins.stages: COOKBOOK_BATCH COOKBOOK_COMMON DEFAULT_SAMPLING NO_ADVANTAGE
        builtins.training: DEFAULT_BUDGET DEFAULT_DEADLINES DEFAULT_FAILURE DEFAULT_GIVE_UP PRICES
            retry_then
        builtins.wrappers: ASKED JUDGED OBSERVED TEMPLATES
        declarations: AT CLAIM CONFIGURATION CONTAINS DECLARATIONS ENDS EPISODE_VALUES EVAL EXPECT
            EXPRESSION_KINDS LACKS MODEL_FIELDS NEEDS OWN_LOSSES PARAM_TYPES STAGES SWEEP TEST
            TRAINING
        environments: ChatTurns busy_players chat_history_of code_of code_of_data code_of_stage
            comparers_of decides env_facts files_of functions_of goes_on history_of
            is_chat is_included is_rewarded judges_of located_files located_stages makes_text
            max_turns opens_elsewhere opponent_name own_code part_of paths_in played_as
            players_of_role players_with_work prompt_rules reward_models_of roles_of rubrics_of
            seats_of share_of stays task_count templates_of trained_seats unknown_turns
            usual_players with_files with_other_histories with_role
        facts: BaseModelFacts END_MARKS FREE LORA_RATES PRICE_KINDS TINY TINY_TOKENIZER
            drops_thinking UNKNOWN_PRICE ends_with_text find_model find_retired gem_facts gem_ids
            model_names part_cost prices_as_of published_at recommended_rate renderer_fits
            renderer_keeps_prefix renderer_names textarena_facts tokenizer_of
        index: BUILTINS KINDS aggregate_traits builtins_of can_weigh find_anywhere find_builtin
            grader_traits how_to_make is_taken known_loss known_preference learns_targets_alone
            loss_traits metric_traits names_of opponent_traits preference_losses
            preference_program preference_traits service_loss_traits service_settings source_traits
            teacher_traits tracker_traits words_of wrapper_traits
        kept.audits: audit_key audit_line audited audited_text environments_of keep_audits
        keys: DOTENV is_provided provide_keys read_dotenv
        metrics: find_metric measurable metric_name metrics_of watched
        plan_files: plan_from_file plan_to_file recipe_in_file
        providers: CATALOGUE Provider ProviderError asks_older_weights dollars find_provider
            limits_of model_price nearest_model price_source provider provider_names
            reread_providers service_of stage_limits
        records: Args Builtin Declaration LossTraits MODEL_FOLDER Param PreferenceTraits REQUIRED
            SCALARS Signature WatchedMetric
        saved_weights: ADAPTER_CONFIG ADAPTER_PREFIX ADAPTER_WEIGHTS STATE_HEADER SavedWeights
            WeightsError find_weights is_run_weights layer_kind model_of shown_turns weights_folder
        schema: plan_schema
        settings: TableError how_old is_stale keep_table model_at project_file published_models
            settings_of stated_models stated_price table_file
        search: BY_STRING NameEntry as_data entries example_of find is_named kinds plain_default
            related words
        """,
    )
