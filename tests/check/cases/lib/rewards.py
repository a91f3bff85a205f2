def brief(reply):
    return len(reply) < 100


async def polite(messages, row, *, words):
    return any(word in messages[-1]["content"] for word in words)


def tone(reply, row, scale=1.0):
    return scale


def warm(reply, row):
    len(reply)


def mentions(reply, row):
    return float(row["answer"] in reply)
