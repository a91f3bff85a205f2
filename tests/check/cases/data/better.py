def shorter(one, other, row):
    return len(other) - len(one)
