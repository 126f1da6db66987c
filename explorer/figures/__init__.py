"""Views of a step and of a whole comparison, as plain data for Plotly and for tables. No model is seen here."""

from __future__ import annotations

from explorer.figures.base import Overview, View
from explorer.figures.frontier import FRONTIER
from explorer.figures.heads import HEADS
from explorer.figures.payload import PAYLOAD
from explorer.figures.pool import POOL
from explorer.figures.probs import PROBS
from explorer.figures.race import RACE
from explorer.figures.timeline import TIMELINE
from explorer.figures.tree import TREE
from explorer.figures.window import WINDOW

FIGURES: tuple[View, ...] = (TREE, PROBS, HEADS, FRONTIER, WINDOW, POOL, PAYLOAD)
"""In the order in which the page shows them. A new view is a file and a place in this list."""

OVERVIEWS: tuple[Overview, ...] = (TIMELINE, RACE)
