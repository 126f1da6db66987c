"""Links that reproduce a run: prompt, lanes, settings, seed, lane and step, all in the query. No state on the server.

    ?v=1&prompt=Count+to+ten.&lane=autoregressive&lane=eagle:depth=3&max_new_tokens=48&seed=0&show=eagle&step=12

A lane is written as on the command line, with its changed parameters only; so are the settings, but for seed and
length, which are always there. `show` and `step` say where the viewer was; steps count from 1, as on the page.
`open=example` names the recording that ships, `lesson` and `stop` a lesson: then nothing is run. Unknown names are
ignored; a bad value costs that value and gives a sentence, and the rest still holds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, quote, quote_plus, unquote

from explorer.errors import ExplorerError, brief
from explorer.methods import find_method
from explorer.methods.base import Method
from explorer.params import Params, describe, parse
from explorer.requests import MAX_LANES, CompareRequest, LanePlan, LaneRequest, plan
from explorer.runs import Run
from explorer.trace import Trace
from explorer.ui.controls import RunSettings

VERSION = "1"
EXAMPLE = "example"
"""What `open` may name."""
MOST_CHARACTERS = 6000
"""Longer addresses are refused by some servers and cut by some programs."""
MOST_NAMES = 200
ALWAYS = ("max_new_tokens", "seed")
NUMBERED = ("step", "stop")

Json = dict[str, Any]


@dataclass
class Link:
    """What a link asks for, as far as it can be had."""

    prompt: str = ""
    lanes: list[LaneRequest] = field(default_factory=list)
    settings: Json = field(default_factory=dict)
    show: str = ""
    """The lane to end at."""
    step: int | None = None
    """Counted from 0."""
    open: str = ""
    lesson: str = ""
    stop: int | None = None
    problems: list[str] = field(default_factory=list)

    @property
    def runs(self) -> bool:
        """Is there something to decode?"""
        return bool(self.prompt.strip() and self.lanes and not self.open and not self.lesson)

    @property
    def message(self) -> str:
        """What could not be taken from the link, in one sentence; "" where all could."""
        first, *others = self.problems or [""]
        if not others:
            return first
        more = "1 more value" if len(others) == 1 else f"{len(others)} more values"
        return f"{first.rstrip('.')}; {more} of the link could not be used either."

    @property
    def setup(self) -> Json | None:
        """The value of the lane editor; None where the link names no lanes."""
        if not self.lanes:
            return None
        lanes = [{"method": lane.method, "params": _whole(lane)} for lane in self.lanes]
        return {"lanes": lanes, "settings": parse(RunSettings, self.settings, "A run").model_dump()}

    @property
    def request(self) -> CompareRequest:
        """The run that the link asks for."""
        return CompareRequest(prompt=self.prompt, lanes=self.lanes, **self.settings)


def query_of(wanted: CompareRequest) -> str:
    """The query that asks for this run again. ExplorerError where it would be too long, or the request is none."""
    checked = plan(wanted)
    pairs = [("v", VERSION), ("prompt", checked.prompt), *(("lane", _lane_words(lane)) for lane in checked.lanes)]
    settings = parse(RunSettings, {name: getattr(wanted, name) for name in RunSettings.model_fields}, "A run")
    pairs += [(name, text) for name, text in _changed(settings, ALWAYS)]
    query = "&".join(f"{name}={quote_plus(text, safe=':,=!()*', errors='replace')}" for name, text in pairs)
    if len(query) > MOST_CHARACTERS:
        raise ExplorerError(
            f"The link would have {len(query):,} characters, and more than {MOST_CHARACTERS:,} do not work everywhere; "
            "save the recording or the replay instead."
        )
    return query


def _lane_words(lane: LanePlan) -> str:
    words = ",".join(f"{name}={quote(text, safe='')}" for name, text in _changed(lane.params))
    return f"{lane.method.name}:{words}" if words else lane.method.name


def _changed(params: Params, always: tuple[str, ...] = ()) -> list[tuple[str, str]]:
    """Names and values, as text, of what is not at its default."""
    values, fields = params.model_dump(), type(params).model_fields
    return [
        (name, str(value).lower() if isinstance(value, bool) else str(value))
        for name, value in values.items()
        if name in always or value != fields[name].default
    ]


def linked(run: Run) -> tuple[str, dict[str, str]]:
    """The query for a run, and what its lanes are called where it is opened. ExplorerError where there is none."""
    wanted, traces = request_of(run), linkable(run)
    names = {trace.lane: lane.id for trace, lane in zip(traces, plan(wanted).lanes, strict=True)}
    return query_of(wanted), names


def linkable(run: Run) -> list[Trace]:
    """Lanes that a request gives again; one that was forced somewhere follows no request."""
    traces = run.comparison.lanes if run.comparison is not None else ()
    return [trace for trace in traces if trace.branch is None or trace.branch.kind == "rerun"]


def request_of(run: Run) -> CompareRequest:
    """What the viewer asked for when this run was made. ExplorerError where that cannot be said."""
    if run.recorded:
        raise ExplorerError("A link cannot hold an opened recording: pass the file on, or save it as a replay.")
    if run.comparison is None:
        raise ExplorerError("There is nothing to link to before the run has ended.")
    traces = linkable(run)
    if not traces:
        raise ExplorerError("A link cannot hold a branch by itself; save the recording instead.")
    first = traces[0]
    lanes = [LaneRequest(method=trace.method, params=_own(trace.method, trace.params)) for trace in traces]
    asked = {"max_new_tokens": run.max_new_tokens, "raw": not first.prompt.template_applied}
    sampling = {name: value for name, value in first.params["sampling"].items() if name in RunSettings.model_fields}
    return CompareRequest(prompt=run.prompt, lanes=lanes, **asked, **sampling)


def _own(method: str, params: Mapping[str, Any]) -> Json:
    return {name: params[name] for name in find_method(method).Params.model_fields if name in params}


def _whole(lane: LaneRequest) -> Json:
    method = find_method(lane.method)
    return parse(method.Params, lane.params, method.title).model_dump()


def read_link(query: object, missing: Mapping[str, str | None]) -> Link:
    """What a query asks for. `missing` has a reason for every method that cannot run here, else None."""
    link = Link()
    try:
        if not isinstance(query, str) or len(query) > 4 * MOST_CHARACTERS:
            raise ValueError("too long")
        pairs = parse_qsl(query.removeprefix("?"), keep_blank_values=True, max_num_fields=MOST_NAMES)
    except ValueError:
        link.problems.append("This link is too long to be read; nothing was taken from it.")
        return link
    named = dict(pairs)
    if named.get("v") != VERSION:
        version = brief(named.get("v", ""))
        link.problems.append(f"This link is of version {version}, but this page reads version {VERSION} only.")
        return link
    link.prompt, link.open, link.lesson = (named.get(name, "") for name in ("prompt", "open", "lesson"))
    if link.open not in ("", EXAMPLE):
        link.problems.append(f"The link opens {brief(link.open)}, but there is {EXAMPLE} only.")
        link.open = ""
    _read_lanes(link, [text for name, text in pairs if name == "lane"], missing)
    link.settings = _readable(link, RunSettings, named, "The link")
    _read_place(link, named)
    return link


def _read_lanes(link: Link, texts: list[str], missing: Mapping[str, str | None]) -> None:
    if len(texts) > MAX_LANES:
        link.problems.append(f"The link has {len(texts)} lanes; the first {MAX_LANES} were taken.")
    for text in texts[:MAX_LANES]:
        name, _, words = text.partition(":")
        try:
            method = find_method(name.strip())
        except ExplorerError as error:
            link.problems.append(str(error))
            continue
        if missing.get(method.name):
            link.problems.append(f"{method.title} cannot run here: {missing[method.name]}")
            continue
        link.lanes.append(LaneRequest(method=method.name, params=_read_params(link, method, words)))


def _read_params(link: Link, method: type[Method], words: str) -> Json:
    pairs = [word.partition("=") for word in words.split(",") if word.strip()]
    return _readable(link, method.Params, {name.strip(): unquote(value) for name, _, value in pairs}, method.title)


def _readable(link: Link, params: type[Params], texts: Mapping[str, str], owner: str) -> Json:
    """Those of the values that may be; each of the others gives a sentence. Names that are not known say nothing."""
    good: Json = {}
    for described in describe(params):
        name = described["name"]
        if name not in texts:
            continue
        try:
            good[name] = getattr(parse(params, {name: texts[name].strip()}, owner), name)
        except ExplorerError as error:
            link.problems.append(str(error))
    try:
        parse(params, good, owner)
    except ExplorerError as error:  # each may be, but not together
        link.problems.append(str(error))
        return {}
    return good


def _read_place(link: Link, named: Mapping[str, str]) -> None:
    for name in NUMBERED:
        text = named.get(name, "")
        if text.isascii() and text.isdecimal() and 0 < int(text[:10]) < 10**9:
            setattr(link, name, int(text[:10]) - 1)
        elif text:
            link.problems.append(f"The link's {name} is {brief(text)}, but must be a whole number from 1 on.")
    link.show = named.get("show", "")[:40]
    lanes = {lane.id for lane in plan(link.request).lanes} if link.runs else set()
    if link.show and lanes and link.show not in lanes:
        link.problems.append(f"The link opens the lane {brief(link.show)}, which it does not have.")
        link.show = ""
