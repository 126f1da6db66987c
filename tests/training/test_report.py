"""The report of a run: one page, all of its numbers from the history, safe for any title."""

import json
import re

from explorer.figures.training import PLOTLY_NAME, plotly_script, training_page

POINTS = [
    {"train_tokens": 1000 * n, "top1": [0.1 * n, 0.05 * n], "chain_tokens": 1 + 0.1 * n, "tree_tokens": 1 + 0.2 * n}
    for n in range(1, 6)
]


def figures(page):
    return [
        (json.loads(data), json.loads(layout))
        for data, layout in re.findall(r"Plotly\.newPlot\('figure-\d', (\[.*?\]), (\{.*?\}), \{[^{}]*\}\);", page)
    ]


def test_figures_show_the_history():
    stages = [{"name": "first", "losses": [4.0, 3.0, 2.0]}, {"name": "second", "losses": [2.0, 1.0]}]
    loss, accuracy, acceptance = figures(training_page({"title": "Heads", "stages": stages, "points": POINTS}))
    assert [trace["name"] for trace in loss[0]] == ["first", "second"]
    assert loss[0][0]["y"] == [4.0, 3.5, 3.0]
    assert loss[0][1]["x"] == [3, 4]
    assert [trace["y"] for trace in accuracy[0]] == [[p["top1"][d] for p in POINTS] for d in (0, 1)]
    assert [trace["y"] for trace in acceptance[0]] == [[p[k] for p in POINTS] for k in ("tree_tokens", "chain_tokens")]
    assert all(trace["x"] == [p["train_tokens"] for p in POINTS] for trace in accuracy[0] + acceptance[0])
    assert all(layout["xaxis"]["title"]["text"] and layout["yaxis"]["title"]["text"] for _, layout in (loss, accuracy))


def test_a_page_without_checkpoints_or_with_a_wild_title_is_still_a_page():
    page = training_page({"title": "</script><b>", "stages": [{"name": "</script>", "losses": [1.0]}], "points": []})
    assert "No checkpoint yet" in page
    assert page.count("</script>") == 2  # the two that the page itself closes
    assert f'src="{PLOTLY_NAME}"' in page
    assert b"Plotly" in plotly_script()[:2000] or len(plotly_script()) > 1_000_000
