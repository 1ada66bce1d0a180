"""Pages from templates: everything that comes from a run, a file name or a visitor is escaped."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any
from urllib.parse import quote

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.responses import HTMLResponse, Response

PAGE_FILES = Path(__file__).parent.parent / "assets" / "studio"


class Pages:
    """The templates, ready to be filled."""

    def __init__(self, root: Path, keyed: bool = False) -> None:
        self._environment = Environment(
            loader=FileSystemLoader(PAGE_FILES),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._environment.globals |= {"root": str(root), "keyed": keyed}
        self._environment.filters["path"] = lambda text: quote(str(text), safe="/")
        self._environment.filters["shell"] = lambda text: shlex.quote(str(text))
        self._environment.filters["percent"] = lambda share: "–" if share is None else f"{100 * share:.2f}"
        self._environment.filters["number"] = lambda count: "–" if count is None else f"{count:,}"

    def show(self, template: str, code: int = 200, **content: Any) -> Response:
        """A page, or a part of one."""
        return HTMLResponse(self._environment.get_template(template).render(content), code)

    def refuse(self, status: int, sentence: str) -> Response:
        """A page that says why not, and what to do."""
        return self.show("message.html", status, status=status, sentence=sentence)
