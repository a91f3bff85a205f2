"""The scripts that rebuild the tiny model (`python -m tools.tiny.build`).

`games` plays GEM's environments; `demonstrations` has oracles play them, with the mistakes of
`slips`. `phrases` and `tokenizer` make the vocabulary, `train` the weights, `measure` the figures.
"""
