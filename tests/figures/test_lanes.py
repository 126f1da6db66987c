"""The table of differences says what was measured and nothing else."""

from explorer.figures.lanes import COLUMNS, LANES, WORDS, draft_passes_per_step
from explorer.figures.serve import overview
from explorer.methods import METHODS
from explorer.metrics import speedup
from explorer.runs import Run, RunStore, events_of
from explorer.trace import Comparison, DrafterInfo
from tests.figures.checks import LIGHT
from tests.traces import grouped, make_comparison, make_events, make_run, make_trace


def table(run):
    built = LANES.build(run, LIGHT, "all")
    return {row[0]["t"]: dict(zip(built["columns"], row, strict=True)) for row in built["rows"]}


def test_every_method_is_described():
    assert WORDS.keys() == {method.name for method in METHODS}
    assert all(words.training and words.drafts and words.suits and words.source for words in WORDS.values())


def test_counts_and_times_stand_in_columns_of_their_own():
    assert [name for name in COLUMNS if name.startswith("count")] == COLUMNS[7:14]
    assert [name for name in COLUMNS if name.startswith("measured")] == COLUMNS[14:]
    assert not any("ms" in name.split() or "speed" in name for name in COLUMNS[:14])


def test_numbers_are_the_runs_own():
    run = make_run()
    rows = table(run)
    eagle = run.lanes["eagle"].trace
    assert rows["EAGLE"]["count: tokens a target pass"]["t"] == f"{eagle.totals.tokens_per_target_pass:.2f}"
    assert rows["EAGLE"]["count: draft passes a step"]["t"] == "1.00"
    faster = speedup(run.lanes["autoregressive"].trace, eagle)
    assert rows["EAGLE"]["measured: speed-up"]["t"] == f"{faster:.2f}×"
    assert rows["Autoregressive"]["measured: speed-up"]["t"] == "1.00×"
    accepted, drafted = eagle.totals.accepted_drafts, eagle.totals.drafted_nodes
    assert rows["EAGLE"]["count: accepted of drafted"]["t"] == f"{accepted / drafted:.0%}"
    assert rows["Autoregressive"]["count: accepted of drafted"]["t"] == "–"
    assert all(
        cell.get("title") for row in rows.values() for name, cell in row.items() if name[:5] in ("count", "measu")
    )


def test_sizes_are_the_drafters():
    drafter = DrafterInfo(id="d", parameters=250_000, bytes=500_000)
    trace = make_trace("eagle", "eagle", grouped([2, 1], "eagle", 4.0)).model_copy(update={"drafter": drafter})
    run = Run(id="sized")
    for event in events_of(Comparison(lanes=(trace,)), {"eagle": "EAGLE"}, ""):
        run.apply(event)
    row = table(run)["EAGLE"]
    assert (row["extra parameters"]["t"], row["extra MB"]["t"]) == ("250 k", "0.5")
    assert "25.0% of the target's" in row["extra parameters"]["title"]
    assert row["measured: speed-up"]["t"] == "–", "there is no plain lane to compare with"


def test_every_number_is_defined_in_words():
    built = LANES.build(make_run(), LIGHT, "all")
    terms = dict(built["definitions"])
    assert {name for name in COLUMNS if name[:5] in ("count", "measu")} <= terms.keys()
    assert all(terms.values())


def test_a_barely_trained_drafter_is_named():
    run = make_run()
    assert "barely" not in table(run)["EAGLE"]["training needed"]["t"]
    run.lanes["eagle"].header.params["training"] = "barely"
    assert "barely" in table(run)["EAGLE"]["training needed"]["t"]


def test_what_is_not_known_yet_is_a_dash():
    run = Run(id="live")
    for event in make_events()[:4]:
        run.apply(event)
    assert draft_passes_per_step(run.lanes["eagle"]) is None
    assert table(run)["EAGLE"]["count: draft passes a step"]["t"] == "–"


def test_a_method_that_nobody_knows_has_a_row():
    traces = (make_trace("new", "telepathy", grouped([2, 1], "mind", 1.0)),)
    run = Run(id="new")
    for event in events_of(Comparison(lanes=traces), {}, ""):
        run.apply(event)
    assert table(run)["telepathy"]["training needed"]["t"] == "–"


def test_the_answer_is_a_table_of_the_contract():
    store = RunStore()
    run = store.new("example", recorded=True)
    for event in make_events():
        run.apply(event)
    view = overview(store, {"run": "example", "view": "lanes", "theme": "dark", "axis": None})["view"]
    assert view["kind"] == "table"
    assert len(view["rows"]) == len(make_comparison().lanes)
    for row in view["rows"]:
        assert len(row) == len(view["columns"])
        assert all(cell.keys() <= {"t", "k", "n", "bar", "node", "title", "m"} for cell in row)
    assert "EAGLE 2.88 tokens a target pass" in view["alt"]
