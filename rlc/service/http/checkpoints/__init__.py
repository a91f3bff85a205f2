"""Training runs and checkpoints over the API.

``runs`` finds and describes them, ``routes`` answers for them, ``external`` serves adapters to
other programs in the files of Hugging Face PEFT.
"""
