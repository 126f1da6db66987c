"""The player is one function body made of several files."""

import re
from collections import Counter

from explorer.player import PLAYER, PLAYER_STYLES, script


def test_no_two_files_give_a_name_to_different_things():
    """The later one would silently take the earlier one's place."""
    body = script(*(f"player/{name}" for name in PLAYER))
    named = Counter(re.findall(r"^(?:async )?(?:function\*?|const|let|class) (\w+)", body, flags=re.MULTILINE))
    assert len(named) > 200
    assert [name for name, times in named.items() if times > 1] == []


def test_every_file_is_named_once():
    for names in (PLAYER, PLAYER_STYLES):
        assert len(names) == len(set(names))
    assert PLAYER[-1] == "main", "it builds what the others have registered"
