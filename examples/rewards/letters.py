def share(reply, row):
    """How much of the reply is the letter that the row asks for."""
    return reply.count(row["letter"]) / max(len(reply), 1)


def shape(reply, row):
    """Two numbers with names; the recipe says what they weigh."""
    return {"one_word": len(reply.split()) == 1, "plain": reply.isalpha()}


def length(reply, row):
    return len(reply)
