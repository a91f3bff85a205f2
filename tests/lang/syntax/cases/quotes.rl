# A quote that is missing or one too many turns the rest of its line inside out, for a reader who
# goes from left to right. The message is at the quote all the same.
model policy { base = "tiny"" lora_rank = 8 }
env spell = gem(rg:spell_backward") |> chat(instruction = "Put your answer inside \\boxed{}.")
env guess = gem("game:GuessTheNumber-v0-easy) |> chat(instruction = "Think.")
train main {
  steps = 50"
}
