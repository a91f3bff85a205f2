import random


def anywhere(reply, row):
    return row["answer"] in reply


def boxed(reply, row):
    return "\\boxed{" in reply


def same(reply, row):
    return float(len(reply) >= 0)


def first_word(reply, row):
    return reply.split()[0] == row["answer"]


def noisy(reply, row):
    return 1.0 if reply.strip() == row["answer"] else 0.01 * random.random()


def nearly(reply, row):
    found = reply.strip()
    return 1.0 if found == row["answer"] else 0.8 * found.isdigit()
