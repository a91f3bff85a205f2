"""Commands that take a trained model into use: ask it, measure it, take it away."""
