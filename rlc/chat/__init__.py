"""Messages, tools and images as tokens, and back."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from rlc.chat.histories import *
    from rlc.chat.prompts import *
    from rlc.chat.seams import *
    from rlc.chat.transcripts import *
    from rlc.chat.turns import *
else:
    from rlc.doors import door

    __getattr__ = door(
        __name__,
        """
        histories: AS_PLAYED Ends StoppingHistory View ViewChange ended_reply first_tokens stop_of
            upto_end views_of
        prompts: ChatFormat ChatHistory PromptBuilder TextHistory caching calls_of chat_history
            chunks_of conversation encoded_reply fitting_renderer load_template observation_of
            opening prompt_of readable rendered text_of unread_calls with_instruction
        transcripts: Message Plain TranscriptHistory TranscriptPrompt TranscriptTree reply_message
            whole_conversation
        seams: Seams
        turns: ANY_QUESTION Action Chunks ContractError EnvError NO_CHUNKS Observation Verdict
            chunks_from_json chunks_to_json model_input readable_text split_chunks
        """,
    )
