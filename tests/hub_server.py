"""A Hugging Face hub with a few small repositories, on this machine: what its client really asks, and gets."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

OLD, NEW = "1" * 40, "2" * 40


@dataclass
class FakeHub:
    """Repositories: name -> commit -> file -> bytes. `gated` and `asked` are read by tests."""

    repos: dict[str, dict[str, dict[str, bytes]]] = field(default_factory=dict)
    main: dict[str, str] = field(default_factory=dict)
    gated: set[str] = field(default_factory=set)
    asked: list[str] = field(default_factory=list)

    def add(self, name: str, folder: Path, commit: str = OLD, **more: bytes) -> None:
        """A repository with a folder's files, whose main branch is that commit."""
        files = {path.name: path.read_bytes() for path in sorted(folder.iterdir()) if path.is_file()}
        self.repos.setdefault(name, {})[commit] = files | {key.replace("__", "."): text for key, text in more.items()}
        self.main[name] = commit

    @contextmanager
    def serve(self) -> Iterator[str]:
        """The hub's address while it is up."""
        server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"hub": self}))
        thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            server.server_close()


class _Handler(BaseHTTPRequestHandler):
    """Answers of one hub, which a subclass names."""

    hub: FakeHub

    def log_message(self, *args: object) -> None:
        """Nothing is printed."""

    def do_HEAD(self) -> None:
        self.answer(body=False)

    def do_GET(self) -> None:
        self.answer(body=True)

    def answer(self, body: bool) -> None:
        path = self.path.partition("?")[0].strip("/").split("/")
        self.hub.asked.append(f"{self.command} {self.path}")
        if path[:2] == ["api", "models"]:
            name, rest = "/".join(path[2:4]), path[4:]
            return self.about(name, _commit(self.hub, name, rest[1] if len(rest) > 1 else "main"))
        return self.file("/".join(path[:2]), path[3], path[4], body)

    def file(self, name: str, revision: str, file: str, body: bool) -> None:
        commit = _commit(self.hub, name, revision)
        files = self.hub.repos.get(name, {}).get(commit or "", {})
        if name in self.hub.gated:
            return self.send(403, b"", {"X-Error-Code": "GatedRepo", "X-Error-Message": "Access is restricted."})
        if file not in files:
            return self.send(404, b"", {"X-Error-Code": "EntryNotFound"})
        etag = hashlib.sha256(files[file]).hexdigest()
        return self.send(200, files[file], {"ETag": f'"{etag}"', "X-Repo-Commit": commit or ""}, body)

    def about(self, name: str, commit: str | None) -> None:
        if name not in self.hub.repos:
            return self.send(404, b"{}", {"X-Error-Code": "RepoNotFound"})
        if commit is None:
            return self.send(404, b"{}", {"X-Error-Code": "RevisionNotFound"})
        files = self.hub.repos[name][commit]
        siblings = [{"rfilename": file, "size": len(content)} for file, content in files.items()]
        told = {"id": name, "modelId": name, "sha": commit, "siblings": siblings, "private": False, "tags": []}
        return self.send(200, json.dumps(told | {"downloads": 0, "likes": 0}).encode(), {})

    def send(self, code: int, content: bytes, headers: dict[str, str], body: bool = True) -> None:
        self.send_response(code)
        for key, value in headers.items():
            self.send_header(key, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if body and self.command == "GET":
            self.wfile.write(content)


def _commit(hub: FakeHub, name: str, revision: str) -> str | None:
    if revision == "main":
        return hub.main.get(name)
    return revision if revision in hub.repos.get(name, {}) else None
