"""Sixty rewards that pay for the work alone, as people write them with care. The first word of each
docstring is the set of tasks that it is for; the rest says what is particular about it."""

import ast
import itertools
import json
import re
from fractions import Fraction


def _last_number(reply):
    numbers = re.findall(r"-?\d+(?:\.\d+)?", reply.replace(",", ""))
    return numbers[-1] if numbers else None


def _boxed(reply):
    found = re.findall(r"\\boxed\{([^{}]*)\}", reply)
    return found[-1].strip() if found else None


def _tagged(reply, tag="answer"):
    found = re.findall(rf"<{tag}>(.*?)</{tag}>", reply, re.S)
    return found[-1].strip() if len(found) == 1 else None


def s01_last_number(reply, row):
    """sums: the last number counts."""
    return float(_last_number(reply) == row["answer"])


def s02_exact(reply, row):
    """words: the whole reply."""
    return float(reply.strip() == row["answer"])


def s03_exact_any_case(reply, row):
    """words: the whole reply, whatever its case and full stop."""
    return float(reply.strip().rstrip(".").lower() == row["answer"].lower())


def s04_boxed(reply, row):
    """sums: the last box."""
    return float(_boxed(reply) == row["answer"])


def s05_boxed_with_format(reply, row):
    """sums: a little for the box, most for the answer."""
    found = _boxed(reply)
    return 0.1 * (found is not None) + 0.9 * (found == row["answer"])


def s06_r1(reply, row):
    """sums: DeepSeek-R1's form and accuracy, as two numbers."""
    form = re.fullmatch(r"\s*<think>.+?</think>\s*<answer>.+?</answer>\s*", reply, re.S)
    return {"format": 0.2 * bool(form), "accuracy": float(_tagged(reply) == row["answer"])}


def s07_penalty_without_form(reply, row):
    """sums: less than nothing without a box."""
    found = _boxed(reply)
    return -0.1 if found is None else float(found == row["answer"])


def s08_wrong_is_negative(reply, row):
    """sums: 1, 0 for no answer, -1 for a wrong one."""
    found = _last_number(reply)
    return 0.0 if found is None else 1.0 if found == row["answer"] else -1.0


def s09_hashes(reply, row):
    """sums: what stands behind the last ####, of which there may be one."""
    parts = reply.split("####")
    return float(len(parts) == 2 and parts[1].strip() == row["answer"])


def s10_length_penalty(reply, row):
    """sums: right answers earn a little less if they are long."""
    right = _last_number(reply) == row["answer"]
    return right * (1 - min(len(reply), 2000) / 20_000)


def s11_soft_overlong(reply, row):
    """sums: DAPO's penalty for what is far too long, right or wrong."""
    over = max(0, len(reply) - 3000) / 3000
    return (1.0 if _last_number(reply) == row["answer"] else 0.0) - min(1.0, over)


def s12_tolerance(reply, row):
    """sums: a number to within a thousandth; nan is no number."""
    try:
        value = float(reply.strip())
    except ValueError:
        return 0.0
    gold = float(row["answer"])
    return float(abs(value - gold) <= 1e-3 * abs(gold))


def s13_decay(reply, row):
    """sums: half for what is within a tenth."""
    try:
        value, gold = float(_last_number(reply) or "nan"), float(row["answer"])
    except ValueError:
        return 0.0
    return 1.0 if value == gold else 0.5 if abs(value - gold) <= 0.1 * gold else 0.0


def s14_fraction(reply, row):
    """fractions: equal as numbers."""
    try:
        return float(Fraction(reply.strip()) == Fraction(row["answer"]))
    except (ValueError, ZeroDivisionError):
        return 0.0


def s15_fraction_in_tags(reply, row):
    """fractions: equal as numbers, between the only tags."""
    try:
        return float(Fraction(_tagged(reply) or "x") == Fraction(row["answer"]))
    except (ValueError, ZeroDivisionError):
        return 0.0


def s16_letter(reply, row):
    """choices: one letter alone."""
    return float(reply.strip().strip("().") == row["answer"])


def s17_letter_said(reply, row):
    """choices: the letter after `answer is`, if it is said once."""
    found = re.findall(r"answer is:?\s*\(?([A-D])\b", reply, re.I)
    return float(len(found) == 1 and found[0] == row["answer"])


def s18_only_letter(reply, row):
    """choices: the only letter in the reply."""
    return float(set(re.findall(r"\b[A-D]\b", reply)) == {row["answer"]})


def s19_letter_boxed(reply, row):
    """choices: the letter in the only box."""
    boxes = re.findall(r"\\boxed\{\s*([A-Z])\s*\}", reply)
    return 1.0 if boxes == [row["answer"]] else 0.0


def s20_letter_tagged(reply, row):
    """choices: the letter between tags."""
    return float((_tagged(reply) or "").strip("().") == row["answer"])


def s21_yes_no(reply, row):
    """yesno: one of the words alone."""
    return float(reply.strip().lower().rstrip(".!") == row["answer"])


def s22_first_word(reply, row):
    """yesno: the first word counts, if the other is nowhere."""
    words = re.findall(r"\w+", reply.lower())
    other = "no" if row["answer"] == "yes" else "yes"
    return float(words[:1] == [row["answer"]] and other not in words)


def s23_balanced(reply, row):
    """yesno: nothing for other words, and less than nothing for the wrong one."""
    said = reply.strip().lower().rstrip(".")
    return {"yes": 1, "no": 1}.get(said, 0) * (1.0 if said == row["answer"] else -1.0)


def s24_set(reply, row):
    """sets: the same set."""

    def items(text):
        return {one.strip().lower() for one in text.split(",") if one.strip()}

    return float(items(reply) == items(row["answer"]))


def s25_f1(reply, row):
    """sets: F1 of the items."""

    def items(text):
        return {one.strip().lower() for one in re.split(r"[,\n]", text) if one.strip()}

    said, gold = items(reply), items(row["answer"])
    both = len(said & gold)
    return 0.0 if not both else 2 * both / (len(said) + len(gold))


def s26_jaccard(reply, row):
    """sets: shared items over all items."""

    def items(text):
        return {one.strip().lower() for one in text.split(",") if one.strip()}

    said, gold = items(reply), items(row["answer"])
    return len(said & gold) / max(len(said | gold), 1)


def s27_ordered(reply, row):
    """sets: the items in their order."""
    gold = [one.strip().lower() for one in row["answer"].split(",")]
    return float([one.strip().lower() for one in reply.strip().rstrip(".").split(",")] == gold)


def s28_tests(reply, row):
    """code: all tests pass, as compared outside of the process in which the reply runs."""
    return _run(reply, row["tests"])


def s29_tests_in_fence(reply, row):
    """code: the same for the last block."""
    blocks = re.findall(r"```(?:python)?\n(.*?)```", reply, re.S)
    return _run(blocks[-1], row["tests"]) if blocks else 0.0


def _run(code, tests):
    """Compute what the tests compare in a process of its own, and compare it here, where no code of
    the reply runs: the process knows neither what is expected nor what comes before its answers."""
    import secrets
    import subprocess
    import sys

    word = secrets.token_hex(16)
    called, expected = zip(*(t.removeprefix("assert ").split(" == ") for t in tests), strict=True)
    program = "\n".join([code, f"print({word!r}, [{', '.join(called)}], sep='\\n')"])
    try:
        done = subprocess.run(
            [sys.executable, "-I", "-S", "-c", program], capture_output=True, text=True, timeout=10
        )
        said = done.stdout.partition(f"{word}\n")[2]
        return float(ast.literal_eval(said) == [ast.literal_eval(one) for one in expected])
    except (subprocess.TimeoutExpired, ValueError, SyntaxError):
        return 0.0


def s30_same_tree(reply, row):
    """code: the same program as the solution, but for its layout."""
    try:
        return float(ast.dump(ast.parse(reply)) == ast.dump(ast.parse(row["solution"])))
    except (SyntaxError, ValueError):
        return 0.0


def s31_json(reply, row):
    """json: the same data."""
    try:
        return float(json.loads(reply) == json.loads(row["answer"]))
    except ValueError:
        return 0.0


def s32_json_fields(reply, row):
    """json: the share of fields that are right, none if there are others."""
    try:
        said, gold = json.loads(reply), json.loads(row["answer"])
    except ValueError:
        return 0.0
    if not isinstance(said, dict) or set(said) != set(gold):
        return 0.0
    return sum(said[name] == gold[name] for name in gold) / len(gold)


def s33_json_with_validity(reply, row):
    """json: a tenth for JSON, the rest for the data."""
    try:
        said = json.loads(reply)
    except ValueError:
        return 0.0
    return 0.1 + 0.9 * (said == json.loads(row["answer"]))


def s34_json_in_fence(reply, row):
    """json: the data of the only block."""
    blocks = re.findall(r"```json\n(.*?)```", reply, re.S)
    try:
        return float(len(blocks) == 1 and json.loads(blocks[0]) == json.loads(row["answer"]))
    except ValueError:
        return 0.0


def s35_summary_f1(reply, row):
    """summaries: F1 of words with the summary; an echo has too many others, and stays below."""

    def words(text):
        return re.findall(r"\w+", text.lower())

    said, gold = words(reply), words(row["answer"])
    both = sum(min(said.count(word), gold.count(word)) for word in set(gold))
    return 0.0 if not both else (2 * both / (len(said) + len(gold))) ** 2


def s36_summary_exact(reply, row):
    """summaries: the words of the summary in order."""
    return float(reply.split() == row["answer"].split())


def s37_bigrams(reply, row):
    """summaries: shared pairs of words over all pairs."""

    def pairs(text):
        words = re.findall(r"\w+", text.lower())
        return set(itertools.pairwise(words))

    said, gold = pairs(reply), pairs(row["answer"])
    return len(said & gold) / max(len(said | gold), 1)


def _solves(expression, row):
    if not re.fullmatch(r"[\d+\-*/() ]{1,60}", expression or ""):
        return False
    if sorted(map(int, re.findall(r"\d+", expression))) != sorted(row["nums"]):
        return False
    try:
        return abs(eval(expression, {"__builtins__": {}}) - row["target"]) < 1e-6
    except (SyntaxError, ZeroDivisionError, TypeError):
        return False


def s38_countdown(reply, row):
    """countdown: an expression of the numbers."""
    return float(_solves(_tagged(reply), row))


def s39_tinyzero(reply, row):
    """countdown: a tenth for the form."""
    found = _tagged(reply)
    return 0.0 if found is None else 1.0 if _solves(found, row) else 0.1


def s40_numbers_used(reply, row):
    """countdown: a fifth for the right numbers, the rest for the target."""
    found = _tagged(reply) or ""
    used = sorted(map(int, re.findall(r"\d{1,9}", found))) == sorted(row["nums"])
    return 0.2 * used + 0.8 * _solves(found, row)


def s41_product(reply, row):
    """sums: brevity counts for right answers alone."""
    return float(_last_number(reply) == row["answer"]) * min(1.0, 200 / max(len(reply), 1))


def s42_final_answer(reply, row):
    """sums: what follows `Answer:` in the last line."""
    last = reply.strip().splitlines()[-1] if reply.strip() else ""
    found = re.fullmatch(r"(?:Final )?[Aa]nswer:\s*(\S+)", last.strip())
    return float(found is not None and found[1].rstrip(".") == row["answer"])


def s43_thinking_stripped(reply, row):
    """sums: what follows the thinking."""
    return float(reply.rpartition("</think>")[2].strip() == row["answer"])


def s44_one_box(reply, row):
    """sums: a second box makes it wrong."""
    boxes = re.findall(r"\\boxed\{(.*?)\}", reply)
    return float(boxes == [row["answer"]])


def s45_scaled(reply, row):
    """sums: ten for right, one for a number, nothing else."""
    found = _last_number(reply)
    return 0.0 if found is None else 10.0 if found == row["answer"] else 1.0


def s46_minus_one(reply, row):
    """words: 1 or -1."""
    return 1.0 if reply.strip().lower().rstrip(".") == row["answer"].lower() else -1.0


def s47_quoted(reply, row):
    """words: quotation marks do not matter."""
    return float(reply.strip().strip("\"'“”.").casefold() == row["answer"].casefold())


def s48_the_answer_is(reply, row):
    """words: the only word after `answer is`."""
    found = re.findall(r"answer is (\w+)\W*$", reply.strip(), re.I)
    return float(found == [row["answer"]] and reply.lower().count("answer is") == 1)


def s49_short_contains(reply, row):
    """words: in a reply of at most three words, the last is the answer."""
    words = re.findall(r"\w+", reply)
    return float(0 < len(words) <= 3 and words[-1].lower() == row["answer"].lower())


def s50_similar(reply, row):
    """words: a typing error costs half."""
    from difflib import SequenceMatcher

    ratio = SequenceMatcher(None, reply.strip().lower(), row["answer"].lower()).ratio()
    return 1.0 if ratio == 1 else 0.5 if ratio > 0.85 else 0.0


def s51_components(reply, row):
    """sums: two numbers that only a right answer has."""
    right = _boxed(reply) == row["answer"]
    return {"right": float(right), "brief": float(right and len(reply) < 100)}


def s52_box_or_last(reply, row):
    """sums: the box, or the last number where there is none."""
    return float((_boxed(reply) or _last_number(reply)) == row["answer"])


def s53_integers(reply, row):
    """sums: equal as whole numbers, with commas."""
    text = (_boxed(reply) or "").replace(",", "").strip()
    return float(
        re.fullmatch(r"-?[0-9]{1,12}", text) is not None and int(text) == int(row["answer"])
    )


def s54_partial_digits(reply, row):
    """sums: nothing unless it is a number, then the share of the digits in their places."""
    text = reply.strip()
    if not re.fullmatch(r"[0-9]+", text) or len(text) != len(row["answer"]):
        return 0.0
    return (
        1.0
        if text == row["answer"]
        else 0.3 * sum(a == b for a, b in zip(text, row["answer"], strict=True)) / len(text)
    )


def s55_conversation(messages, row):
    """sums: the last message of the conversation."""
    return float(_last_number(messages[-1]["content"]) == row["answer"])


async def s56_awaited(reply, row):
    """sums: the same, awaited."""
    return float(_last_number(reply) == row["answer"])


def s57_form_gate(reply, row):
    """sums: no form, no reward."""
    if not re.search(r"</think>", reply):
        return 0.0
    return float(_last_number(reply.rpartition("</think>")[2]) == row["answer"])


def s58_refusal_costs(reply, row):
    """words: a refusal earns a little more than a wrong answer, as it should."""
    said = reply.strip().rstrip(".").lower()
    if said in ("i do not know", "i don't know"):
        return 0.2
    return float(said == row["answer"].lower())


def s59_tag_named_result(reply, row):
    """words: between tags of its own."""
    return float((_tagged(reply, "result") or "").lower() == row["answer"].lower())


def s60_capped_penalty(reply, row):
    """words: repeated words cost, up to a half."""
    words = reply.lower().split()
    repeated = 1 - len(set(words)) / len(words) if words else 0.0
    return float(reply.strip().lower() == row["answer"].lower()) - min(0.5, repeated)
