"""Key press to drawn step in a real Chromium, and what the browser's memory does meanwhile.

python -m benchmarks.stepping URL [--keys 120] [--tokens 128] [--four] [--repeats 1] [--memory] [--out FILE]
python -m benchmarks.stepping URL --open RECORDING.json [--steps 2000] [--lanes autoregressive eagle] [--memory]
python -m benchmarks.stepping replay.html [--memory]

The first runs a prompt in one lane a method; the second opens a recording, made as long as asked for by repeating its
steps; the third plays a replay file. The page must be served already (make run). Needs what the browser tests need.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, CDPSession, Page, sync_playwright

from benchmarks.long_trace import repeated
from explorer.trace_io import read_comparison, write

PROMPT = "Write a Python function that returns the n-th Fibonacci number, and explain each line."
WAIT_MS = 600_000
PRESS = """key => new Promise(done => {
  const player = document.querySelector('#player');
  const before = player.dataset.step;
  const start = performance.now();
  const watch = new MutationObserver(() => {
    const { step, drawnStep } = player.dataset;
    if (step !== before && drawnStep === step) { watch.disconnect(); done(performance.now() - start); }
  });
  watch.observe(player, { attributes: true });
  player.dispatchEvent(new KeyboardEvent('keydown', { key, bubbles: true }));
  setTimeout(() => { watch.disconnect(); done(null); }, 5000);
})"""
EARLY, LATE = 100, 1_000
"""Steps after which memory is read."""


def main() -> None:
    """Open or run, step, print."""
    asked = arguments()
    with sync_playwright() as playwright:
        chromium = shutil.which("chromium") or shutil.which("chromium-browser")
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page, first_ms = opened(browser, asked)
        lanes = page.eval_on_selector_all("#player [data-lane]", "rows => rows.map(row => row.dataset.lane)")
        result: dict[str, Any] = {"first step, ms": first_ms} if first_ms is not None else {}
        for number, lane in enumerate(lanes, start=1):
            runs = [measure(page, number, asked) for _ in range(asked.repeats)]
            result[lane] = runs[0] if len(runs) == 1 else best_and_middle(runs)
        if asked.memory:
            result["memory"] = memory(page, len(lanes), asked.pause_ms)
        browser.close()
    asked.out.parent.mkdir(parents=True, exist_ok=True)
    asked.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    for name, numbers in result.items():
        print(name, numbers)


def arguments() -> argparse.Namespace:
    """What the command line says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("url", help="address of the page, or a replay file")
    parser.add_argument("--keys", type=int, default=120)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--four", action="store_true", help="the page's four lanes instead of all methods")
    parser.add_argument("--open", type=Path, help="a recording to open instead of running")
    parser.add_argument("--steps", type=int, help="with --open: repeat its steps up to so many")
    parser.add_argument("--lanes", nargs="+", default=["autoregressive", "eagle"], help="with --steps: which")
    parser.add_argument("--memory", action="store_true", help=f"the heap after {LATE} steps against that after {EARLY}")
    parser.add_argument("--repeats", type=int, default=1, help="measure so often; smallest and median are printed")
    parser.add_argument("--pause-ms", type=int, default=150)
    parser.add_argument("--out", type=Path, default=Path("out/stepping.json"))
    return parser.parse_args()


def opened(browser: Browser, asked: argparse.Namespace) -> tuple[Page, float | None]:
    """The page with what is to be stepped through, and how long its first step took where that is to be known."""
    page = browser.new_page(viewport={"width": 1440, "height": 900})
    replay = Path(asked.url)
    start = time.perf_counter()
    page.goto(replay.resolve().as_uri() if replay.is_file() else asked.url)
    page.wait_for_selector("#player[data-drawn-step]", timeout=WAIT_MS)
    if replay.is_file():
        return page, round(1000 * (time.perf_counter() - start))
    if asked.open is None:
        return finish_a_run(page, asked.tokens, not asked.four), None
    comparison = read_comparison(asked.open)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "recording.json"
        write(repeated(comparison, asked.steps, asked.lanes) if asked.steps else comparison, path)
        start = time.perf_counter()
        page.locator("input[type=file]").set_input_files(path)
        page.wait_for_selector("#player:not([data-run=example])[data-drawn-step]", timeout=WAIT_MS)
        return page, round(1000 * (time.perf_counter() - start))


def finish_a_run(page: Page, tokens: int, every: bool) -> Page:
    """Lanes of `tokens` tokens, one a method or the page's four, to their end."""
    page.locator("#edit-lanes").click()
    if every:
        page.get_by_role("button", name="that are missing").click()
    page.get_by_label("Max new tokens").fill(str(tokens))
    page.locator("#prompt textarea").fill(PROMPT)
    page.locator("#edit-lanes").click()
    page.locator("#run").click()
    page.wait_for_selector("#player:not([data-run=example])[data-state=done]", timeout=WAIT_MS)
    return page


def measure(page: Page, number: int, asked: argparse.Namespace) -> dict[str, Any]:
    """Milliseconds from key press to data-drawn-step, forwards and back, in one lane."""
    page.keyboard.press(str(number))
    page.keyboard.press("Home")
    page.wait_for_timeout(1500)
    steps = int(page.locator("#player").get_attribute("data-steps") or 0)
    presses = min(asked.keys, 2 * (steps - 1))
    times = []
    for press in range(presses):  # half of them forwards, then back
        page.wait_for_timeout(asked.pause_ms)
        times.append(page.evaluate(PRESS, "ArrowRight" if press < presses / 2 else "ArrowLeft"))
    drawn = sorted(time for time in times if time is not None)
    place = min(len(drawn) - 1, round(0.95 * (len(drawn) - 1)))
    return {
        "steps": steps,
        "presses": presses,
        "missed": times.count(None),
        "median_ms": round(statistics.median(drawn), 1),
        "p95_ms": round(drawn[place], 1),
        "max_ms": round(drawn[-1], 1),
    }


def best_and_middle(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Smallest and median over the repetitions: on a busy machine the smallest says more."""
    names = ("median_ms", "p95_ms", "max_ms")
    return runs[0] | {
        name: [min(run[name] for run in runs), statistics.median(run[name] for run in runs)] for name in names
    }


def memory(page: Page, lanes: int, pause_ms: int) -> dict[str, Any]:
    """The heap after garbage collection, after EARLY and after LATE steps back and forth in the last lane."""
    tools = page.context.new_cdp_session(page)
    page.keyboard.press(str(lanes))
    page.keyboard.press("Home")
    page.wait_for_timeout(1500)
    steps = int(page.locator("#player").get_attribute("data-steps") or 0)
    heaps, forwards = {}, True
    for press in range(1, LATE + 1):
        at = int(page.locator("#player").get_attribute("data-step") or 0)
        forwards = at == 0 or (forwards and at < steps - 1)
        page.evaluate(PRESS, "ArrowRight" if forwards else "ArrowLeft")
        page.wait_for_timeout(pause_ms / 10)
        if press in (EARLY, LATE):
            page.wait_for_timeout(2000)
            heaps[press] = heap(tools)
    early, late = heaps[EARLY], heaps[LATE]
    return {f"after {EARLY}, MB": early, f"after {LATE}, MB": late, "ratio": round(late / early, 3)}


def heap(tools: CDPSession) -> float:
    """Megabytes of JavaScript objects in use, once all garbage is gone."""
    tools.send("Performance.enable")
    for _ in range(3):
        tools.send("HeapProfiler.collectGarbage")
    found = {each["name"]: each["value"] for each in tools.send("Performance.getMetrics")["metrics"]}
    return round(found["JSHeapUsedSize"] / 1e6, 2)


if __name__ == "__main__":
    main()
