"""A recording made long still adds up: it can be written, read again and played."""

from pathlib import Path

import pytest

from benchmarks.long_trace import repeated
from explorer.metrics import step_ms
from explorer.session import EXAMPLE_FILE, recorded_events
from explorer.trace_io import read_comparison, write


@pytest.mark.parametrize("steps", [1, 200])
def test_steps_go_on_where_they_ended(steps: int, tmp_path: Path) -> None:
    original = read_comparison(EXAMPLE_FILE)
    write(repeated(original, steps, ["autoregressive", "eagle"]), tmp_path / "long.json")
    long = read_comparison(tmp_path / "long.json")
    assert [trace.lane for trace in long.lanes] == ["autoregressive", "eagle"]
    for trace in long.lanes:
        assert len(trace.steps) == steps
        starts = [span.start_ms for step in trace.steps for span in step.spans]
        assert starts == sorted(starts)
        cached = [step.cache_length for step in trace.steps]
        assert cached == sorted(cached)
        assert trace.totals.target_passes == steps
        assert trace.totals.output_tokens == len(trace.tokens)
        assert trace.totals.decode_ms == pytest.approx(sum(map(step_ms, trace.steps)))
    assert sum(1 for _ in recorded_events(long)) > 2 * steps
