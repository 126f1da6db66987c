"""Views of a step and of a whole comparison, as plain data for Plotly and for tables. No model is seen here."""

from __future__ import annotations

from explorer.figures.acceptance import ACCEPTANCE
from explorer.figures.base import Overview, View
from explorer.figures.cache import CACHE
from explorer.figures.code import CODE
from explorer.figures.curves import CURVES
from explorer.figures.details import DETAILS
from explorer.figures.drafts import DRAFTS
from explorer.figures.frontier import FRONTIER
from explorer.figures.heads import HEADS
from explorer.figures.jacobi import JACOBI
from explorer.figures.lanes import LANES
from explorer.figures.lookup import LOOKUP
from explorer.figures.mask import MASK
from explorer.figures.payload import PAYLOAD
from explorer.figures.pool import POOL
from explorer.figures.probs import PROBS
from explorer.figures.race import RACE
from explorer.figures.roofline import ROOFLINE
from explorer.figures.timeline import TIMELINE
from explorer.figures.tree import TREE
from explorer.figures.trials import TRIALS
from explorer.figures.window import WINDOW

FIGURES: tuple[View, ...] = (
    JACOBI,
    LOOKUP,
    TREE,
    PROBS,
    TRIALS,
    HEADS,
    FRONTIER,
    WINDOW,
    POOL,
    MASK,
    CACHE,
    PAYLOAD,
    DETAILS,
    CODE,
    DRAFTS,
)
"""In the order in which the page shows them; a lane's first has the wide panel, and where a method drafts a chain
its own picture says more than a tree. A new view is a file and a place in this list. The last ones are asides, which
have parts of the player of their own."""

OVERVIEWS: tuple[Overview, ...] = (TIMELINE, RACE, ACCEPTANCE, LANES, ROOFLINE, CURVES)
