import re

import pytest

from explorer.figures.theme import THEMES, axis, base_layout
from explorer.figures.timeline import PHASES
from explorer.requests import MAX_LANES

COLOUR = re.compile(r"#[0-9a-f]{6}")


def luminance(colour: str) -> float:
    """Relative luminance (WCAG 2.2)."""
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(first: str, second: str) -> float:
    """Between 1 and 21."""
    high, low = sorted((luminance(first), luminance(second)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def test_contrast_is_measured_as_the_standard_says():
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.01)


@pytest.mark.parametrize("theme", THEMES.values(), ids=list(THEMES))
class TestTheme:
    def test_text_is_legible(self, theme):
        assert contrast(theme.ink, theme.card) >= 7
        assert contrast(theme.soft, theme.card) >= 4.5
        for name, role in theme.roles.items():
            assert contrast(role.text, theme.card) >= 4.5, name
            if name != "kept":  # its fill is a marker's, no text stands on it
                assert contrast(role.text, role.fill) >= 4.5, name
                assert contrast(theme.soft, role.fill) >= 4.5, name
        for shade in theme.ramp:
            assert contrast(theme.ink, shade) >= 4.5

    def test_marks_stand_out_from_the_ground(self, theme):
        for name, role in theme.roles.items():
            assert contrast(role.line, theme.card) >= 3, name
        for style in theme.lanes:
            assert contrast(style.colour, theme.card) >= 3

    def test_roles_of_tree_nodes_differ_in_more_than_colour(self, theme):
        drawn = ["root", "accepted", "bonus", "rejected", "unreached", "cut"]
        shapes = {(theme.roles[name].dash, theme.roles[name].width) for name in drawn}
        assert len(shapes) == len(drawn)
        assert len({theme.roles[name].words for name in drawn}) == len(drawn)

    def test_phases_and_lanes_differ_in_more_than_colour(self, theme):
        assert set(theme.phases) == set(PHASES)
        assert theme.phases["draft"][1] != theme.phases["verify"][1]
        assert theme.phases["prefill"][1] != theme.phases["drafter-prefill"][1]
        assert len({colour for colour, _ in theme.phases.values()}) == len(theme.phases) - 1
        assert len(theme.lanes) == MAX_LANES
        for part in zip(*theme.lanes, strict=True):
            assert len(set(part)) == MAX_LANES, "colour, dash and symbol each tell all lanes apart"

    def test_layout_is_quiet_and_carries_no_template(self, theme):
        layout = base_layout(theme)
        assert layout["template"] is None
        assert layout["paper_bgcolor"] == layout["plot_bgcolor"] == "rgba(0,0,0,0)"
        assert layout["uirevision"] == "keep"
        assert axis(theme, "time, ms")["title"]["text"] == "time, ms"


def test_both_themes_know_the_same_names():
    light, dark = THEMES["light"], THEMES["dark"]
    assert light.roles.keys() == dark.roles.keys()
    assert light.phases.keys() == dark.phases.keys()
    assert len(light.lanes) == len(dark.lanes)
    colours = [role.line for theme in THEMES.values() for role in theme.roles.values()]
    assert all(COLOUR.fullmatch(colour) for colour in colours)
