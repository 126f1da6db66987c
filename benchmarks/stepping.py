"""Key press to drawn step in a real Chromium: the 95th percentile over a finished run of four lanes.

python -m benchmarks.stepping URL [--keys 120] [--tokens 128] [--out out/stepping.json]

The page must be served already (make run). Needs what the browser tests need.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
from pathlib import Path
from typing import Any

from playwright.sync_api import Page, sync_playwright

PROMPT = "Write a Python function that returns the n-th Fibonacci number, and explain each line."
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


def main() -> None:
    """Run, step, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url")
    parser.add_argument("--keys", type=int, default=120)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--pause-ms", type=int, default=150)
    parser.add_argument("--out", type=Path, default=Path("out/stepping.json"))
    asked = parser.parse_args()
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1440, "height": 900})
        page.goto(asked.url)
        finish_a_run(page, asked.tokens)
        lanes = page.eval_on_selector_all("#player [data-lane]", "rows => rows.map(row => row.dataset.lane)")
        result = {lane: measure(page, number, asked) for number, lane in enumerate(lanes, start=1)}
        browser.close()
    asked.out.parent.mkdir(parents=True, exist_ok=True)
    asked.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    for lane, numbers in result.items():
        print(lane, numbers)


def finish_a_run(page: Page, tokens: int) -> None:
    """Four lanes of `tokens` tokens, to their end."""
    page.wait_for_selector("#player [data-lane]")
    page.locator("#edit-lanes").click()
    page.get_by_label("Max new tokens").fill(str(tokens))
    page.locator("#prompt textarea").fill(PROMPT)
    page.locator("#run").click()
    page.wait_for_selector("#player:not([data-run=example])[data-state=done]", timeout=600_000)


def measure(page: Page, number: int, asked: argparse.Namespace) -> dict[str, Any]:
    """Milliseconds from key press to data-drawn-step, forwards and back, in one lane."""
    page.keyboard.press(str(number))
    page.keyboard.press("Home")
    page.wait_for_timeout(1500)
    steps = int(page.locator("#player").get_attribute("data-steps") or 0)
    presses = min(asked.keys, 2 * (steps - 1))
    times = []
    for press in range(presses):
        page.wait_for_timeout(asked.pause_ms)
        times.append(page.evaluate(PRESS, "ArrowRight" if press % (2 * (steps - 1)) < steps - 1 else "ArrowLeft"))
    drawn = sorted(time for time in times if time is not None)
    place = min(len(drawn) - 1, round(0.95 * (len(drawn) - 1)))
    return {
        "presses": presses,
        "missed": times.count(None),
        "median_ms": round(statistics.median(drawn), 1),
        "p95_ms": round(drawn[place], 1),
        "max_ms": round(drawn[-1], 1),
    }


if __name__ == "__main__":
    main()
