"""What a recipe can call: each builtin is declared once, with its traits."""
