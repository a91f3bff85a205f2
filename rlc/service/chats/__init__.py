"""Chats with a model over any sampling client.

`model` is a client with the renderer of its chats; `prompts` and `replies` convert messages to
tokens and tokens back to text, reasoning and calls of tools; `forms` is what a reply has to be, and
`grammar` which texts fit a schema. `rlc chat`, judges and opponents of a run, and the routes of
`rlc.service.inference` use them.
"""
