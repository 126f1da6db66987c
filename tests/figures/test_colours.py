"""The page's colours are those of the figures, and legible in every pair in which the style sheets use them."""

import re

import pytest

from explorer.figures.theme import THEMES
from explorer.player import ASSETS
from tests.figures.test_theme import contrast

TEXTS = ("ink", "soft", "acc-ink", "bonus-ink", "rej-ink", "hit-ink")
MARKS = ("edge", "acc", "bonus", "rej", "idle", "hit")
GROUNDED = {"acc-ink": "acc-bg", "bonus-ink": "bonus-bg", "hit-ink": "hit-bg", "rej-ink": "warn-bg"}
"""Texts that stand on a ground of their own hue too."""
DRAWN = {"r-failed": "rej", "dx-progress": "acc"}
"""Colours of marks that are set as text: a cross in the legend, a bar."""
BY_PROGRAM = (".dx-lesson",)
"""What gets the focus by program only, so that it is read out: no key leads there."""
RULE = re.compile(r"([^{}]+)\{([^{}]*)\}")


def palette(name: str) -> dict[str, str]:
    """Names and values of one theme in assets/theme.css."""
    light, dark = re.findall(r"\{([^}]*)\}", (ASSETS / "theme.css").read_text(encoding="utf-8"))[:2]
    return dict(re.findall(r"--dx-([\w-]+): (#[0-9a-f]{6})", light if name == "light" else dark))


def rules() -> list[tuple[str, str, str]]:
    """File, selector and declarations of every rule."""
    return [
        (path.name, selector.strip(), body)
        for path in sorted(ASSETS.rglob("*.css"))
        for selector, body in RULE.findall(re.sub(r"/\*.*?\*/", "", path.read_text(encoding="utf-8"), flags=re.DOTALL))
    ]


@pytest.mark.parametrize("name", list(THEMES))
def test_texts_and_marks_stand_out(name):
    colours = palette(name)
    for ground in ("bg", "card"):
        for text in TEXTS:
            assert contrast(colours[text], colours[ground]) >= 4.5, (text, ground)
        for mark in MARKS:
            assert contrast(colours[mark], colours[ground]) >= 3, (mark, ground)
    for text, ground in GROUNDED.items():
        assert contrast(colours[text], colours[ground]) >= 4.5, (text, ground)
    for ground in ("acc-bg", "bonus-bg", "hit-bg", "warn-bg", "chance-bg"):
        assert contrast(colours["ink"], colours[ground]) >= 7, ground


def test_text_is_set_in_colours_for_text_only():
    """What is light on dark names its ground in the same rule."""
    for file, selector, body in rules():
        for used in re.findall(r"(?<![\w-])color:\s*var\(--dx-([\w-]+)\)", body):
            inverted = used in ("card", "bg") and re.search(r"background[\w-]*:\s*var\(--dx-ink\)", body)
            drawn = any(part in selector and used == mark for part, mark in DRAWN.items())
            assert used in TEXTS or inverted or drawn, (file, selector, used)


@pytest.mark.parametrize("theme", THEMES.values(), ids=list(THEMES))
def test_the_page_and_the_figures_have_the_same_colours(theme):
    colours = palette(theme.name)
    assert (theme.card, theme.ink, theme.soft) == (colours["card"], colours["ink"], colours["soft"])
    pairs = {"accepted": "acc", "bonus": "bonus", "rejected": "rej", "unreached": "idle", "hit": "hit"}
    for role, name in pairs.items():
        assert theme.roles[role].line == colours[name], role
    for role, name in {"accepted": "acc", "bonus": "bonus", "hit": "hit"}.items():
        assert (theme.roles[role].text, theme.roles[role].fill) == (colours[f"{name}-ink"], colours[f"{name}-bg"]), role
    assert theme.roles["rejected"].text == colours["rej-ink"]


def test_focus_can_be_seen_wherever_it_may_be():
    """No rule takes the outline away from what keys lead to."""
    for file, selector, body in rules():
        assert selector.removesuffix(":focus-visible").endswith(BY_PROGRAM) or not re.search(
            r"outline:\s*(0|none)", body
        ), (file, selector)
    page = (ASSETS / "page.css").read_text(encoding="utf-8")
    assert re.search(r":focus-visible \{ outline: 2px solid var\(--dx-ink\)", page)


def test_type_follows_the_size_that_the_browser_is_set_to():
    for file, selector, body in rules():
        sizes = re.findall(r"font(?:-size)?:[^;]*?\b\d[\d.]*px", body)
        assert sizes == [], (file, selector)
