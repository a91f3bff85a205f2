"""Chats and texts from served models in the APIs of OpenAI and Anthropic.

`routes` has the paths; `openai`, `responses` and `anthropic` read the requests and write the
answers of an API; `endpoint` has what they share: bodies, the models by their names, and what was
answered.
"""
