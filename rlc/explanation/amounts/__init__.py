"""How much: sizes of a stage, tokens and dollars, the time of a step."""
