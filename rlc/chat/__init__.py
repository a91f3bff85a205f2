"""Messages, tools and images as tokens, and back.

``turns`` is what an episode shows a policy and what that replies; ``tokens`` are prompts with parts
that are no text; ``prompts`` go on with the tokens that were sampled, or are written anew;
``replies`` end where a text or the renderer says; ``views`` show others the same episode in their
own way; ``transcripts`` find a conversation again among those that were sampled.
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from rlc.chat.prompts import *
    from rlc.chat.replies import *
    from rlc.chat.tokens import *
    from rlc.chat.transcripts import *
    from rlc.chat.turns import *
    from rlc.chat.views import *
else:
    from rlc.doors import door

    __getattr__ = door(
        __name__,
        """
        prompts: PromptBuilder TextHistory ToolChatHistory calls_of chat_history chunks_of
            conversation encoded_reply fitting_renderer load_template observation_of opening
            prompt_of readable rendered text_of tool_chat_history unread_calls with_instruction
        replies: Ends StoppingHistory ended_reply stop_of upto_end
        tokens: Chunks NO_CHUNKS chunks_from_json chunks_to_json model_input readable_text
            split_chunks
        transcripts: Message Plain TranscriptHistory TranscriptPrompt TranscriptTree
            reply_message whole_conversation
        turns: Action ContractError EnvError Observation Verdict
        views: AS_PLAYED View ViewChange views_of
        """,
    )
