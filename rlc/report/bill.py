"""What a run was expected to cost, what it has metered, and what its service has billed.

A service bills by session, model and kind of token, and knows no stages: what is billed stands
beside a stage only where the run has no other of the same model. Discarded is what was sampled and
taught nothing.
"""

from __future__ import annotations

import json
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import isfinite
from pathlib import Path
from typing import Any

from rlc.catalog import located_files, model_price, part_cost, provider
from rlc.plan import JOURNAL_FILE, StagePlan, in_dollars, is_hosted, plan_hash
from rlc.plan.leaves import asked_models
from rlc.pricing import LEVELS, Level, StageCost, needs_signal, stage_costs
from rlc.records import field, frozen, values_of
from rlc.report.measures import TokenKind, spend
from rlc.report.run_files import TOKEN_KINDS, RunFiles, read_files
from rlc.runtime import ROLLOUTS_FILE, SERVICE_FILE, Journal, read_lines, read_run
from rlc.service import AccountUsage, BilledUsage, ServiceError, StoredCheckpoints

TOLERANCE = 0.01  # up to which metered and billed tokens agree
_OTHER_KINDS = ("checkpoints", "storage")
_LISTED = {"prefill": "prefill", "cached": "cached", "sampled": "sample", "trained": "train"}


@frozen
class BillLine:
    """Tokens of one kind in a stage, or in all (``stage`` is None): predicted by level, metered,
    and billed; USD where they are known. None: nobody says it."""

    stage: str | None
    kind: str
    predicted: Mapping[Level, float]
    metered: float
    billed: float | None = None
    predicted_usd: float | None = None
    metered_usd: float | None = None
    billed_usd: float | None = None

    @property
    def differs(self) -> bool:
        """Return whether metered and billed are further apart than 1 %."""
        if self.billed is None:
            return False
        return abs(self.billed - self.metered) > TOLERANCE * max(self.metered, self.billed, 1.0)


@frozen
class DiscardedUsage:
    """Tokens that were sampled, or read as prompts, and taught nothing; USD, None if unknown."""

    stage: str
    why: str
    rollouts: int
    tokens: float
    usd: float | None


@frozen
class RunBill:
    """The bill of one run; :func:`rlc.bill` returns them.

    Attributes:
        run: its folder.
        lines: by stage and kind of token; those of all stages together have no stage.
        discarded: what taught nothing.
        predicted_usd: low, expected, high, storage included.
        metered_usd, billed_usd: the sums; None if a price, or an amount, is unknown.
        others: what is billed beside tokens: checkpoints, and gigabyte-hours of storage.
        unbilled: why nothing is said of what was billed; empty if something is.
        invoiced_until: until when billed amounts are those of invoices.
        links: pages of its sessions in the console of the service.
    """

    run: Path
    lines: tuple[BillLine, ...]
    discarded: tuple[DiscardedUsage, ...]
    predicted_usd: Mapping[Level, float | None]
    metered_usd: float | None
    billed_usd: float | None
    others: tuple[BilledUsage, ...]
    unbilled: str
    invoiced_until: str | None
    links: tuple[str, ...]
    storage: StoredCheckpoints | None = field(default=None)

    @property
    def reconciles(self) -> bool | None:
        """Return whether all metered kinds are billed to 1 %; None if nothing is known of it."""
        compared = [line for line in self.lines if line.billed is not None]
        return None if not compared else not any(line.differs for line in compared)

    def to_dict(self) -> dict[str, Any]:
        """Return the data of `rlc bill --json`; what has no bound is null."""

        def plain(value: Any) -> Any:
            if isinstance(value, Mapping):
                return {key: plain(one) for key, one in value.items()}
            if isinstance(value, tuple):
                return [plain(one if isinstance(one, str) else _values(one)) for one in value]
            return None if isinstance(value, float) and not isfinite(value) else value

        found: dict[str, Any] = plain(values_of(self) | {"run": str(self.run)})
        found["storage"] = None if self.storage is None else _values(self.storage)
        return found | {"reconciles": self.reconciles}


def _values(record: Any) -> dict[str, Any]:
    from attrs import asdict

    return values_of(record) if isinstance(record, BillLine | DiscardedUsage) else asdict(record)


def bill_of_run(
    path: Path, base_url: str | None = None, usage_file: Path | None = None, ask: bool = True
) -> RunBill:
    """Return the bill of the run in a folder. Its service is asked, unless ``ask`` is false or an
    answer is in a file; where it cannot say, the bill says why. Raise RunError if there is no run,
    and ServiceError if the file holds something else."""
    files, run = read_files(path), read_run(path)
    service = next((stage.model.service for stage in files.plan.stages), "")
    usage, storage, unbilled = None, None, ""
    if usage_file is not None:
        from rlc.service import usage_in_file

        usage = usage_in_file(_json_in(usage_file))
    elif not ask:
        unbilled = "the service was not asked"
    elif not is_hosted(service) or not provider(service).bills:
        unbilled = f"{provider(service).title} bills nothing"
    else:
        from rlc.service import account_usage  # with the SDK, and torch

        begun = _server(path)
        try:
            usage, storage = account_usage(
                service, base_url or begun, run.started or time.time(), run.updated or time.time()
            )
        except ServiceError as error:
            unbilled = error.message + (f" ({error.hint})" if error.hint else "")
    return _bill(path, files, usage, storage, unbilled)


def _json_in(file: Path) -> Any:
    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ServiceError(f"{file} cannot be read as JSON: {error}") from error


def _server(path: Path) -> str | None:
    """Return the address of the server that a run has used."""
    journal = Journal(path / JOURNAL_FILE, read_only=True)
    try:
        server = journal.meta("server") or ""
    finally:
        journal.close()
    return server if "://" in server else None


def _bill(
    path: Path,
    files: RunFiles,
    usage: AccountUsage | None,
    storage: StoredCheckpoints | None,
    unbilled: str,
) -> RunBill:
    stages = located_files(files.plan).stages
    costs = dict(zip((s.name for s in stages), stage_costs(stages), strict=True))
    own = list(_sessions(path, files, usage))
    events = [one for one in usage.events if one.session in own] if usage else []
    if usage is not None and not events:
        seen = "no usage of its sessions is billed yet: it lags by hours"
        unbilled = unbilled or (seen if own else "the run has noted no session")
    kinds = spend(files).kinds
    lines = [
        line for stage in stages for line in _lines(stage, stages, costs[stage.name], kinds, events)
    ]
    if len(stages) > 1:
        lines += _sums(lines, events)
    tokens = [one for one in events if one.kind in TOKEN_KINDS]
    amounts = [one.usd for one in events if one.kind in (*TOKEN_KINDS, "storage")]
    totals = {level: [cost.total(level) for cost in costs.values()] for level in LEVELS}
    return RunBill(
        run=path,
        lines=tuple(lines),
        discarded=tuple(discarded(files)),
        predicted_usd={
            level: None if any(one.total is None for one in parts) else sum(p.usd for p in parts)
            for level, parts in totals.items()
        },
        metered_usd=_sum(row.usd for row in files.spent),
        billed_usd=_sum(amounts) if tokens else None,
        others=tuple(_others(events)),
        unbilled=unbilled,
        invoiced_until=usage.invoiced_until if usage else None,
        links=_links(own) if usage else (),
        storage=storage,
    )


def _links(sessions: Iterable[str]) -> tuple[str, ...]:
    from rlc.service import session_link

    return tuple(filter(None, map(session_link, sessions)))


def _sum(amounts: Iterable[float | None]) -> float | None:
    """Return a sum; None if one of the amounts is unknown."""
    known = list(amounts)
    return None if None in known else sum(one for one in known if one is not None)


def _sessions(path: Path, files: RunFiles, usage: AccountUsage | None) -> Iterator[str]:
    """Yield the sessions of a run: those that it has noted, and those that name it."""
    noted = [r for r in read_lines(path / SERVICE_FILE) if r.get("event") == "session"]
    found = [str(one["session_id"]) for one in noted if one.get("session_id")]
    plan = plan_hash(files.plan) if usage else ""
    for name, about in (usage.sessions if usage else {}).items():
        if about.get("rlc_run") == path.resolve().name and about.get("rlc_plan") == plan:
            found.append(name)
    yield from dict.fromkeys(found)


def _lines(
    stage: StagePlan,
    stages: Sequence[StagePlan],
    cost: StageCost,
    kinds: Iterable[TokenKind],
    events: Sequence[BilledUsage],
) -> Iterator[BillLine]:
    """Yield the kinds of a stage. What it asks of other models is part of it, as in its journal."""
    metered = {one.kind: one for one in kinds if one.stage == stage.name}
    price = model_price(stage.model)
    predicted = {level: _predicted(cost, level) for level in LEVELS}
    for kind in TOKEN_KINDS:
        by_level = {level: predicted[level][kind] for level in LEVELS}
        one = metered.get(kind)
        if one is None and not any(by_level.values()):
            continue
        billed, usd = _billed(kind, events) if len(stages) == 1 and events else (None, None)
        expected = part_cost(by_level["expected"], getattr(price, _LISTED[kind], None))
        yield BillLine(
            stage=stage.name,
            kind=kind,
            predicted=by_level,
            metered=float(one.tokens) if one else 0.0,
            billed=billed,
            predicted_usd=None if cost.asked["expected"] else expected,
            metered_usd=one.usd if one else 0.0,
            billed_usd=usd,
        )


def _predicted(cost: StageCost, level: Level) -> dict[str, float]:
    """Return the tokens of a stage by the kinds of a meter."""
    tokens = cost.step_tokens[level] * cost.times + cost.tokens_before[level]
    for one in cost.asked[level]:
        tokens += one.total(cost.times)
    return {
        "prefill": tokens.prefill + tokens.reference,
        "cached": tokens.cached,
        "sampled": tokens.sample,
        "trained": tokens.train,
    }


def _billed(kind: str, events: Iterable[BilledUsage]) -> tuple[float, float | None]:
    mine = [one for one in events if one.kind == kind]
    return sum(one.amount for one in mine), _sum(one.usd for one in mine)


def _sums(lines: Sequence[BillLine], events: Sequence[BilledUsage]) -> Iterator[BillLine]:
    for kind in TOKEN_KINDS:
        mine = [line for line in lines if line.kind == kind]
        if mine:
            billed, usd = _billed(kind, events) if events else (None, None)
            yield BillLine(
                stage=None,
                kind=kind,
                predicted={level: sum(one.predicted[level] for one in mine) for level in LEVELS},
                metered=sum(one.metered for one in mine),
                billed=billed,
                predicted_usd=_sum(one.predicted_usd for one in mine),
                metered_usd=_sum(one.metered_usd for one in mine),
                billed_usd=usd,
            )


def _others(events: Iterable[BilledUsage]) -> Iterator[BilledUsage]:
    """Yield what is billed beside tokens, a kind each."""
    for kind in _OTHER_KINDS:
        if mine := [one for one in events if one.kind == kind]:
            amount, usd = sum(one.amount for one in mine), _sum(one.usd for one in mine)
            yield BilledUsage(None, None, kind, amount, usd)


_EQUAL = "groups whose members had equal rewards"
_REPLACED = "groups that were replaced by others"
_FAILED = "rollouts that failed"
_LOST = "attempts that failed, and steps that were done again"
_PLAYED = ("prefill", "cached", "sampled")  # what episodes take


def discarded(files: RunFiles) -> Iterator[DiscardedUsage]:
    """Yield what each training stage has sampled for nothing."""
    stages = [stage for stage in files.plan.trainings if stage.rollouts is not None]
    used: dict[str, dict[str, list[float]]] = {
        stage.name: defaultdict(lambda: [0, 0]) for stage in stages
    }
    sampled: defaultdict[str, float] = defaultdict(float)
    by_name = {stage.name: stage for stage in stages}
    for record in read_lines(files.path / ROLLOUTS_FILE):
        if (stage := by_name.get(str(record.get("stage")))) is None:
            continue
        replies = sum(turn["tokens"] for turn in record["turns"])
        sampled[stage.name] += replies
        if (why := _why(record, stage)) is not None:
            row = used[stage.name][why]
            row[0] += 1
            row[1] += replies + sum(turn["prompt_tokens"] for turn in record["turns"])
    for stage in stages:
        rows = [row for row in files.spent if row.stage == stage.name and row.step > 0]
        metered = {kind: sum(row.tokens[kind] for row in rows) for kind in _PLAYED}
        price, played = model_price(stage.model), sum(metered.values())
        paid = _sum(part_cost(metered[k], getattr(price, _LISTED[k], None)) for k in _PLAYED)
        lost = metered["sampled"] - sampled[stage.name]
        if lost > TOLERANCE * metered["sampled"] and not asked_models(stage):
            used[stage.name][_LOST] = [0, lost / metered["sampled"] * played]
        for why, (count, tokens) in used[stage.name].items():
            usd = None if paid is None else paid * tokens / max(played, 1)
            yield DiscardedUsage(stage.name, why, int(count), tokens, usd)


def _why(record: Mapping[str, Any], stage: StagePlan) -> str | None:
    """Return why a rollout taught nothing; None if it did."""
    if record.get("error") is not None:
        return _FAILED
    if record.get("replaced"):
        return _REPLACED
    if needs_signal(stage) and not any(record.get("advantages", ())):
        return _EQUAL
    return None


def bill_lines(bill: RunBill) -> Iterator[str]:
    """Yield a bill as text."""
    yield f"{bill.run}"
    yield f"  {'':24}{'predicted':>34}{'metered':>14}{'billed':>14}"
    for line in bill.lines:
        ends = sorted(line.predicted.values())  # at its highest nothing comes from a cache
        low, usual, high = map(_tokens, (ends[0], line.predicted["expected"], ends[-1]))
        billed = "" if line.billed is None else _tokens(line.billed)
        mark = "  differs by more than 1%" if line.differs else ""
        label = f"{line.stage or 'all stages'} {line.kind}"
        predicted = f"{usual} ({low} to {high})"
        yield f"  {label:24}{predicted:>34}{_tokens(line.metered):>14}{billed:>14}{mark}".rstrip()
    low, usual, high = (_usd(bill.predicted_usd[level]) for level in LEVELS)
    predicted = f"{usual} ({low} to {high})"
    billed = "" if bill.billed_usd is None else _usd(bill.billed_usd)
    yield f"  {'dollars':24}{predicted:>34}{_usd(bill.metered_usd):>14}{billed:>14}".rstrip()
    for other in bill.others:
        unit = "GB-hours of storage" if other.kind == "storage" else "checkpoints saved"
        usd = "" if other.usd is None else f", {in_dollars(other.usd)}"
        yield f"  billed beside that: {other.amount:,.4g} {unit}{usd}"
    if bill.storage is not None:
        stored, month = bill.storage, bill.storage.usd_a_month
        usd = "" if month is None else f", {in_dollars(month)} a month"
        yield (
            f"  stored now for the whole account: {stored.count:,} checkpoints, "
            f"{stored.gigabytes:,.1f} GB{usd}"
        )
    for one in bill.discarded:
        usd = "" if not one.usd else f", {in_dollars(one.usd)}"
        many = f"{one.rollouts:,} rollouts, " if one.rollouts else ""
        yield f"  discarded in {one.stage}: {one.why}: {many}{_tokens(one.tokens)} tokens{usd}"
    if bill.unbilled:
        yield f"  nothing billed: {bill.unbilled}"
    if bill.invoiced_until:
        yield f"  amounts are those of invoices until {bill.invoiced_until}, later by list price"
    yield from (f"  {link}" for link in bill.links)


def _tokens(number: float) -> str:
    return f"{number:,.0f}" if isfinite(number) else "no bound"


def _usd(amount: float | None) -> str:
    if amount is None:
        return "unknown"
    return in_dollars(amount) if isfinite(amount) else "no bound"
