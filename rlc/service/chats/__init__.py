"""Chats with a model over any sampling client: messages to tokens, tokens as they are sampled, and
tokens back to text, reasoning and calls of tools.

To read it: `model`, a client with the renderer that writes its chats;
`prompts` and `replies`, the ways there and back. Who asks a model uses it: `rlc chat`, judges and
opponents of a run, and the routes of `rlc.service.inference`.
"""
