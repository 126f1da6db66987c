"""The use cases of page and command line: compare lanes on a prompt, one run at a time per device."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from explorer.branches import Addition, ExtendRequest, joined, plan_addition, refuse_early, refuse_unfinished
from explorer.decode import Lane
from explorer.errors import ExplorerError
from explorer.events import Checked, Ended, Event, Extended, LaneEnded, LaneHeader, Queued, Started
from explorer.footprint import drafter_info
from explorer.methods import METHODS, catalogue, code_of
from explorer.metrics import baseline_of, compare_outputs
from explorer.offers import offers
from explorer.queueing import DeviceQueue, StepLock
from explorer.race import Runner, prefill_all, race
from explorer.record import StepWriter
from explorer.requests import CompareRequest, LanePlan, Plan, describe_settings, plan
from explorer.runs import Run, RunStore, events_of
from explorer.shelf import Shelf, ShelfSettings
from explorer.target import TargetModel
from explorer.trace import Comparison, Prompt, Trace
from explorer.trace_io import read_comparison

EXAMPLE_ID = "example"
NOTHING_DECODED = "Stopped before anything was decoded."
EXAMPLE_FILE = Path(__file__).resolve().parent.parent / "assets" / "examples" / "fibonacci.json"


class Studio:
    """Models, runs and the line in front of the device. One for a process; holds no viewer's state."""

    def __init__(self, settings: ShelfSettings | None = None) -> None:
        self.shelf = Shelf(settings or ShelfSettings())
        self.runs = RunStore()
        self._device = DeviceQueue()
        self._steps = StepLock()
        self._extending: set[str] = set()
        self._extending_lock = threading.Lock()

    @property
    def model_line(self) -> str:
        """Which model answers, for the page's head."""
        if not self.shelf.ready:
            return self.shelf.title
        info = self.shelf.target.info
        threads = getattr(info, "threads", None)
        place = f"CPU, {threads} thread{'s' if threads != 1 else ''}" if threads else info.device
        return f"{self.shelf.title} · {info.dtype} · {place}"

    def methods(self) -> list[dict[str, Any]]:
        """Every method described, with `available`, and `reason` where it is not."""
        rows = []
        for row in catalogue():
            reason = self.shelf.missing(row["needs"])
            rows.append({**row, "available": reason is None, "reason": reason})
        return rows

    def models(self) -> list[dict[str, Any]]:
        """Every model on offer described, with `available`, and `reason` where this machine cannot hold it."""
        titles = {method.needs: method.title for method in METHODS}
        return [{**row, "kinds": [titles.get(kind, kind) for kind in row["kinds"]]} for row in offers(self.shelf)]

    def switch(self, model: str, stop: threading.Event) -> Iterator[Event]:
        """Wait in line like a run, load another model, put it in the place of the one that answers, for everybody.

        ExplorerError, and the earlier model goes on answering, where that cannot be.
        """
        if not self.shelf.settings.switching:
            raise ExplorerError("The model of this page is fixed; run the explorer yourself to choose another.")
        if model not in {row["id"] for row in self.models()}:
            raise ExplorerError("This model is not on offer here; start the explorer with --model to use it.")
        ticket = self._device.enter()
        try:
            yield from self._wait_in_line(ticket, stop.is_set)
            with suppress(ExplorerError):  # whoever chose another model need not care why the first one failed
                yield from self.shelf.watch(stop.is_set)
            if model != self.shelf.model or not self.shelf.ready:
                yield from self.shelf.switch(model, stop.is_set)
        finally:
            self._device.leave(ticket)

    def quiet(self) -> AbstractContextManager[None]:
        """Other work on this machine waits here until it falls between two measured steps."""
        return self._steps.hold()

    def example(self) -> Run:
        """The recorded comparison that ships: on screen before any model is loaded."""
        held = self.runs.get(EXAMPLE_ID)
        if held is not None:
            return held
        if not EXAMPLE_FILE.is_file():  # a page without its example still works
            return self.runs.new(EXAMPLE_ID, recorded=True)
        return self.open_recording(EXAMPLE_FILE, EXAMPLE_ID)

    def open_recording(self, path: Path, run_id: str | None = None) -> Run:
        """A recorded file as a run. ExplorerError where it is none."""
        comparison = read_comparison(path)
        run = self.runs.new(run_id, recorded=True)
        for event in recorded_events(comparison):
            run.apply(event)
        return run

    def compare(self, request: CompareRequest, stop: threading.Event) -> Iterator[Event]:
        """Queue, load, prefill, race. Closing the iterator, or setting `stop`, frees the device."""
        wanted = plan(request)
        self._refuse_missing(wanted)
        ticket = self._device.enter()
        try:
            yield from self._wait_in_line(ticket, stop.is_set)
            yield from self.shelf.watch(stop.is_set)
            if stop.is_set():
                yield Ended("cancelled", NOTHING_DECODED, None)
                return
            self._refuse_missing(wanted)  # again: the model may have been changed while this run waited
            yield from self._run(wanted, stop.is_set)
        finally:
            self._device.leave(ticket)

    def extendable(self, run_id: object, request: ExtendRequest) -> Run:
        """The finished run to which that lane may be added: itself, or a copy where everybody may see it."""
        run = self.runs.get(run_id)
        if run is None:
            raise ExplorerError("This run is no longer held; run it again.")
        comparison = refuse_early(run, request)
        if not self.runs.shared(run.id):
            return run
        with self.quiet():
            copied = self.runs.new()
            for event in recorded_events(comparison):
                copied.apply(event)
        copied.continues = run.id
        return copied

    def extend(self, run: Run, request: ExtendRequest, stop: threading.Event) -> Iterator[Event]:
        """Queue, load, then decode one more lane of a finished run; the events are for that run.

        ExplorerError where that cannot be. Closing the iterator, or setting `stop`, frees the device.
        """
        with self._extends_alone(run):
            refuse_unfinished(run)
            ticket = self._device.enter()
            try:
                yield from self._wait_in_line(ticket, stop.is_set)
                yield from self.shelf.watch(stop.is_set)
                if stop.is_set():
                    yield Ended("cancelled", NOTHING_DECODED, run.comparison)
                    return
                yield from self._extend(run, request, stop.is_set)
            finally:
                self._device.leave(ticket)

    @contextmanager
    def _extends_alone(self, run: Run) -> Iterator[None]:
        with self._extending_lock:
            if run.id in self._extending:
                raise ExplorerError("A lane is being added to this run; wait for it.")
            self._extending.add(run.id)
        try:
            yield
        finally:
            self._extending.discard(run.id)

    def _refuse_missing(self, wanted: Plan) -> None:
        for lane in wanted.lanes:
            reason = self.shelf.missing(lane.method.drafter_kind(lane.params))
            if reason:
                raise ExplorerError(f"{lane.method.title} cannot run: {reason}")

    def _wait_in_line(self, ticket: object, stopped: Callable[[], bool]) -> Iterator[Event]:
        told = 0
        while (place := self._device.wait(ticket, 0.2)) > 0 and not stopped():
            if place != told:
                told = place
                yield Queued(place)

    def _run(self, wanted: Plan, stopped: Callable[[], bool]) -> Iterator[Event]:
        target = self.shelf.target
        prompt = encode_prompt(target, wanted)
        runners = [self._runner(target, wanted, lane, prompt) for lane in wanted.lanes]
        yield Started(tuple(runner.header for runner in runners), wanted.prompt, wanted.max_new_tokens, wanted.summary)
        traces, failure = yield from self._decode(runners, prompt.token_ids, stopped)
        comparison = _comparison(traces, wanted)
        if comparison is not None and not failure:
            yield Checked(comparison.lossless)
        yield Ended(*_ending(stopped(), failure, nothing=comparison is None), comparison)

    def _extend(self, run: Run, request: ExtendRequest, stopped: Callable[[], bool]) -> Iterator[Event]:
        target, comparison = self.shelf.target, run.comparison
        # on which machine a recording was made nobody knows, nor what that did besides
        added = plan_addition(run, request, target, apart=run.recorded or bool(run.continues))
        self._refuse_missing(added.plan)
        runner = self._branch_runner(target, added)
        yield Extended(runner.header)
        traces, failure = yield from self._decode([runner], added.context, stopped)
        for trace in traces.values():
            comparison = joined(comparison, trace)
        yield Checked({} if comparison is None else comparison.lossless)
        yield Ended(*_ending(stopped(), failure), comparison)

    def _decode(
        self, runners: Sequence[Runner], token_ids: Sequence[int], stopped: Callable[[], bool]
    ) -> Generator[Event, None, tuple[dict[str, Trace], str]]:
        """Prefill and race; the traces by lane, and a sentence where that failed."""
        target, traces = self.shelf.target, dict[str, Trace]()
        taps = frozenset[str]().union(*(runner.lane.taps for runner in runners))
        try:
            shared = yield from prefill_all(target, token_ids, taps, stopped=stopped, guard=self._steps.hold)
            if shared is not None:
                for event in race(runners, shared, stopped=stopped, guard=self._steps.hold):
                    if isinstance(event, LaneEnded):
                        traces[event.trace.lane] = event.trace
                    yield event
        except ExplorerError as error:
            for runner in runners:
                if runner.tokens and not runner.ended:
                    traces[runner.header.lane] = runner.trace("error", str(error))
            return traces, str(error)
        return traces, ""

    def _branch_runner(self, target: TargetModel, added: Addition) -> Runner:
        runner = self._runner(target, added.plan, added.lane, added.prompt)
        runner.header = replace(runner.header, subtitle=added.subtitle, branch=added.branch)
        runner.given, runner.forced = added.given, added.forced
        runner.lane.max_new_tokens = added.budget
        return runner

    def _runner(self, target: TargetModel, wanted: Plan, lane: LanePlan, prompt: Prompt) -> Runner:
        drafter = self.shelf.drafter(lane.method.drafter_kind(lane.params))
        costs, sampling = self.shelf.costs(lane.method.needs), wanted.sampling.model_dump()
        header = LaneHeader(
            lane=lane.id,
            method=lane.method.name,
            title=lane_title(lane),
            subtitle=lane.method.subtitle(lane.params),
            lossless=lane.method.rule(lane.params).lossless(wanted.sampling.temperature),
            params={
                **sampling,
                "acceptance_rule": lane.method.rule(lane.params).name,
                "max_new_tokens": wanted.max_new_tokens,
                **lane.params.model_dump(),
                # again by themselves: EAGLE has a top_k of its own
                "sampling": sampling,
                # what sizes were chosen by: with the same costs and the same seed a lane does the same
                **({"costs": asdict(costs)} if getattr(lane.params, "size", "fixed") == "auto" else {}),
            },
            model=target.info,
            drafter=None if drafter is None else drafter_info(drafter),
        )
        racer = Lane(
            lane.id,
            target,
            lane.method,
            lane.params,
            sampling=wanted.sampling,
            max_new_tokens=wanted.max_new_tokens,
            drafter=drafter,
            costs=costs,
        )
        header = replace(header, code=code_of(header.method, header.params))
        return Runner(racer, header, prompt, StepWriter(target.texts))


def lane_title(lane: LanePlan) -> str:
    """The method's title; a second lane of the same method is told apart by its number."""
    number = lane.id.removeprefix(f"{lane.method.name}-")
    return f"{lane.method.title} ({number})" if number.isdecimal() else lane.method.title


def encode_prompt(target: TargetModel, wanted: Plan) -> Prompt:
    """The prompt as the model sees it. ExplorerError where it does not fit the context."""
    tokenizer = target.tokenizer
    if wanted.raw:
        text = wanted.prompt
    elif tokenizer.chat_template is None:
        raise ExplorerError(
            "This model has no chat template, as base models have none; send the prompt raw (Raw prompt, or --raw)."
        )
    else:
        message = [{"role": "user", "content": wanted.prompt}]
        try:
            text = tokenizer.apply_chat_template(message, tokenize=False, add_generation_prompt=True)
        except Exception as error:  # templates are programs that come with models
            reason = str(error)[:120]
            raise ExplorerError(f"The model's chat template fails ({reason}); send the prompt raw.") from error
    token_ids = tokenizer(text, add_special_tokens=wanted.raw, verbose=False)["input_ids"]
    if len(token_ids) >= target.context_tokens:
        raise ExplorerError(
            f"The prompt has {len(token_ids):,} tokens; the model's context of {target.context_tokens:,} "
            f"takes at most {target.context_tokens - 1:,}, since one must be left for the output."
        )
    if not token_ids:
        raise ExplorerError("The prompt is empty for this tokenizer; type some text first.")
    if max(token_ids) >= target.vocabulary_tokens:
        raise ExplorerError(
            f"The tokenizer gives token {max(token_ids):,}, but the model knows {target.vocabulary_tokens:,}: "
            "they do not belong together."
        )
    return Prompt(text=text, template_applied=not wanted.raw, token_ids=tuple(token_ids), typed=wanted.prompt)


def recorded_events(comparison: Comparison) -> Iterator[Event]:
    """A recorded comparison as events, with the titles of the methods that this program knows."""
    titles = {method.name: method.title for method in METHODS}
    return events_of(comparison, titles, _recorded_settings(comparison), code_of)


def _recorded_settings(comparison: Comparison) -> str:
    first = comparison.lanes[0]
    sampling = first.params.get("sampling", first.params)
    tokens = first.params.get("max_new_tokens", "?")
    return describe_settings(
        tokens, sampling if isinstance(sampling, dict) else {}, templated=first.prompt.template_applied
    )


def _comparison(traces: dict[str, Trace], wanted: Plan) -> Comparison | None:
    ordered = tuple(traces[lane.id] for lane in wanted.lanes if lane.id in traces)
    if not ordered:
        return None
    reference = baseline_of(ordered)
    # two sampled outputs are equal in law only, so there is nothing to compare token for token
    if reference is None or wanted.sampling.temperature > 0:
        return Comparison(lanes=ordered)
    checks = {trace.lane: compare_outputs(reference, trace) for trace in ordered if trace is not reference}
    return Comparison(lanes=ordered, lossless=checks)


def _ending(stopped: bool, failure: str = "", *, nothing: bool = False) -> tuple[str, str]:
    """State and sentence. nothing: no lane had begun."""
    if failure:
        return "error", failure
    if not stopped:
        return "done", ""
    return "cancelled", NOTHING_DECODED if nothing else "Stopped; what was decoded so far is kept."
