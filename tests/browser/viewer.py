"""A browser session of its own, and the words in which tests drive it."""

from __future__ import annotations

from typing import Any

WAIT_MS = 120_000


class Viewer:
    """A browser session of its own, and what went wrong in it."""

    def __init__(self, browser: Any, server: str, **options: Any) -> None:
        self.server = server
        self.problems: list[str] = []
        self.context = browser.new_context(**({"viewport": {"width": 1280, "height": 900}} | options))
        self.page = self._watched()

    def _watched(self) -> Any:
        page = self.context.new_page()
        page.set_default_timeout(WAIT_MS)
        page.on("pageerror", lambda error: self.problems.append(f"page error: {error}"))
        page.on("console", self._console)
        page.on("dialog", lambda dialog: (self.problems.append("a dialog opened"), dialog.dismiss()))
        page.route("**/*", self._route)
        return page

    def open_again(self) -> Viewer:
        """In a new tab of the same browser: what it remembers is still there."""
        self.page.close()
        self.page = self._watched()
        return self.open(drawn=False)

    def _console(self, message: Any) -> None:
        if message.type == "error":
            self.problems.append(f"console: {message.text[:300]}")

    def _route(self, route: Any) -> None:
        url = route.request.url
        if url.startswith((self.server, "data:", "blob:")):
            route.continue_()
        else:
            self.problems.append(f"request to another host: {url[:120]}")
            route.abort()

    def open(self, drawn: bool = True) -> Viewer:
        self.page.goto(self.server)
        self.page.wait_for_selector("#player[data-state]")
        if drawn:
            self.page.wait_for_selector("#player[data-drawn-step]")
        return self

    def run(self, prompt: str | None = None, until: str | None = "done") -> Viewer:
        """Press Run, and wait for a state."""
        if prompt is not None:
            self.page.locator("#prompt textarea").fill(prompt)
        before = self.data("run")
        self.page.locator("#run").click()
        if until is not None:
            self.page.wait_for_function(
                "([before, state]) => { const d = document.getElementById('player').dataset;"
                " return d.run !== before && d.state === state; }",
                arg=[before, until],
            )
        return self

    def data(self, name: str) -> str | None:
        """A data attribute of the player, by its camel-case name."""
        return self.page.evaluate("(name) => document.getElementById('player').dataset[name] ?? null", name)

    def step(self) -> int:
        """The step on screen, once all its figures are drawn."""
        self.page.wait_for_function(
            "() => (({ drawnStep: drawn, step }) => drawn && drawn === step)(document.getElementById('player').dataset)"
        )
        return int(self.data("drawnStep") or -1)

    def save(self, what: str) -> None:
        """A choice of the menu "save"."""
        self.page.get_by_role("button", name="save").click()
        self.page.get_by_role("button", name=what).click()

    def message(self) -> str:
        return str(self.page.locator("#player .dx-message").inner_text())

    def count(self, css: str) -> int:
        return int(self.page.locator(css).count())

    def set_tokens(self, text: str) -> None:
        """Type into the setting; the editor stays open."""
        if not self.page.locator("#dx-editor").is_visible():
            self.page.locator("#edit-lanes").click()
        self.page.get_by_label("Max new tokens").fill(text)

    def close(self) -> None:
        self.context.close()
        assert self.problems == []
