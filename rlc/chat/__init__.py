"""Messages, tools and images as tokens, and back.

``turns`` is what an episode shows a policy and what that replies; ``tokens`` are prompts with parts
that are no text; ``prompts`` go on with the tokens that were sampled, or are written anew;
``replies`` end where a text or the renderer says; ``views`` show others the same episode in their
own way; ``transcripts`` find a conversation again among those that were sampled.
"""
