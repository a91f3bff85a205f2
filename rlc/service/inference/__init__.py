"""Chats and texts from served models, in the APIs that other programs speak: OpenAI's, Anthropic's.

To read it: `routes`, which paths there are; `openai` and `anthropic`, what a request of each API
means and how its answer is written; between them, the same for both, `requests` and `endpoint`
(what a model's name stands for, and what was answered).
"""
