"""The routes of the page: lists, results and actions. Starting, trying and uploading are in `forms.py`."""

from __future__ import annotations

import asyncio
import contextlib
import io
import shlex
import sys
import tempfile
import zipfile
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from starlette.applications import Starlette
from starlette.background import BackgroundTask
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from unsee.errors import InputError, RunError, UnseeError
from unsee.runs.folder import CONFIG, FRONT, read_config
from unsee.runs.front import read_front
from unsee.runs.picking import pick_prompt
from unsee.runs.prompt import CARD, WEIGHTS, load_prompt
from unsee.runs.records import ConfigRecord
from unsee.runs.stored import StoredRun, read_run
from unsee.serve.guard import App
from unsee.studio import result as results
from unsee.studio.catalogue import SORTS, Catalogue, RunRow, filter_rows, sort_rows
from unsee.studio.door import Door, Pass
from unsee.studio.examples import Examples, prompt_of
from unsee.studio.jobs import Queue
from unsee.studio.live import journal_events, list_events, progress
from unsee.studio.pages import PAGE_FILES, Pages
from unsee.studio.shelf import Kept, Shelf, thumbnail
from unsee.studio.uploads import Uploads
from unsee.text_table import as_csv

TICK = 0.5  # seconds between two looks at the queue
STATES = ("running", "waiting", "interrupted", "finished", "failed", "damaged")


@dataclass
class Studio:
    """All that the routes share."""

    catalogue: Catalogue
    queue: Queue
    shelf: Shelf
    examples: Examples
    uploads: Uploads
    pages: Pages
    visitors: Pass
    data_sets: Sequence[Mapping[str, Any]]  # known by name: `name`, `found`
    options: tuple[str, ...]  # of `unsee` for every run that is started, such as --data-dir

    def __post_init__(self) -> None:
        self._read: Kept[StoredRun] = Kept(8)

    def stored(self, folder: Path) -> StoredRun:
        """A finished run, read again when its result has changed."""
        stamp = (folder / "result.json").stat().st_mtime_ns if (folder / "result.json").is_file() else 0
        return self._read.get_or((folder, stamp), lambda: read_run(folder))


def make_pages(studio: Studio, forms: Sequence[Route]) -> App:
    """The page as an ASGI application, behind its door."""

    @contextlib.asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        worker = asyncio.create_task(_work(studio))
        yield
        worker.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await worker

    async def wrong(request: Request, error: Exception) -> Response:
        return refusal(studio, request, error)

    app = Starlette(
        routes=[*forms, *_routes(studio), Mount("/static", StaticFiles(directory=PAGE_FILES))],
        lifespan=lifespan,
        exception_handlers={UnseeError: wrong, HTTPException: wrong, Exception: wrong},
    )
    return Door(app, studio.visitors, studio.pages.refuse)


def refusal(studio: Studio, request: Request, error: Exception) -> Response:
    """An error in words: as a page, or as JSON where a script asks."""
    status, text = 500, "Something went wrong in the page itself; the terminal that it was started from says what."
    if isinstance(error, UnseeError):
        status, text = (404 if request.method == "GET" and isinstance(error, RunError) else 400), str(error)
    elif isinstance(error, HTTPException):
        status = error.status_code
        text = "There is no such page." if status == 404 else error.detail
    if "application/json" in request.headers.get("accept", ""):
        return JSONResponse({"error": text}, status)
    return studio.pages.refuse(status, text)


async def _work(studio: Studio) -> None:
    """Keeps the queue going, and the list of runs read."""
    while True:
        await run_in_threadpool(studio.queue.tick)
        await asyncio.sleep(TICK)


def _routes(studio: Studio) -> list[Route]:
    return [
        *_list_routes(studio),
        *_run_routes(studio),
        *_stream_routes(studio),
        *_action_routes(studio),
        *_download_routes(studio),
    ]


def _list_routes(studio: Studio) -> list[Route]:
    def runs(request: Request) -> Response:
        given = request.query_params
        sort, text, state = given.get("sort", "changed"), given.get("q", ""), given.get("state", "")
        every = studio.catalogue.rows()
        shown = sort_rows(filter_rows(every, text, state), sort)
        template = "rows.html" if given.get("part") == "rows" else "runs.html"
        return studio.pages.show(
            template,
            rows=shown,
            total=len(every),
            digest=studio.catalogue.digest(),
            sort=sort,
            q=text,
            state=state,
            sorts={name: words for name, (words, _, _) in SORTS.items()},
            states=STATES,
        )

    def compare(request: Request) -> Response:
        names = request.query_params.getlist("run")
        if len(names) < 2:
            raise InputError("tick at least two finished runs in the list to compare them")
        found = {name: studio.stored(studio.catalogue.folder(name)) for name in names[:6]}
        return studio.pages.show("compare.html", runs=_compared(found))

    return [Route("/", runs), Route("/compare", compare)]


def _compared(found: Mapping[str, StoredRun]) -> dict[str, Any]:
    """Runs side by side: scores, the settings in which they differ, and accuracy by class."""
    settings = {name: {**run.settings, "seed": run.result.seed} for name, run in found.items()}
    keys = next(iter(settings.values()))
    return {
        "names": list(found),
        "scores": {name: results.score_rows(run.result) for name, run in found.items()},
        "queries": {name: run.result.ledger.image_queries for name, run in found.items()},
        "same": len({run.task for run in found.values()}) == 1,
        "different": {
            key: [settings[name].get(key) for name in found]
            for key in keys
            if len({str(settings[name].get(key)) for name in found}) > 1
        },
        "classes": [
            (name, [run.result.per_class.get(name) for run in found.values()])
            for name in dict.fromkeys(name for run in found.values() for name in run.class_names)
        ],
        "forget": {name: set(run.result.forget) for name, run in found.items()},
    }


def _run_routes(studio: Studio) -> list[Route]:
    pages = studio.pages

    def run(request: Request) -> Response:
        name = request.path_params["name"]
        row, folder = studio.catalogue.row(name), studio.catalogue.folder(name)
        config = read_config(folder) if (folder / CONFIG).is_file() and row.state != "damaged" else None
        part = request.query_params.get("part", "")
        if part != "live" and config is not None and row.state == "finished":
            return _result(request, row, folder)
        job = studio.queue.of(folder)
        now = progress(folder, config) if config is not None else None
        return pages.show(
            "live-part.html" if part == "live" else "live.html",
            row=row,
            now=now,
            config=config,
            output=studio.queue.output(job)[-6:] if job is not None else [],
            command=_command(job.arguments if job is not None else ("resume", str(folder))),
        )

    def _result(request: Request, row: RunRow, folder: Path) -> Response:
        found, given = studio.stored(folder), request.query_params
        show = given.get("show") or results.first_shown(found)
        page = int(given["page"]) if given.get("page", "").isdigit() else 1
        part = given.get("part") == "images"
        content: dict[str, Any] = {
            "row": row,
            "show": show,
            "shows": results.SHOW,
            "only": given.get("class", ""),
            "page": page,
            "shots": results.shots(found, show, given.get("class", ""), page),
            "class_names": found.class_names,
        }
        if not part:
            front = results.ordered_front(found.front)
            own = results.own_place(front, folder)
            content |= {
                "at": len(front) // 2 if own is None else own,
                "run": found,
                "headline": results.summary_words(found.result),
                "scores": results.score_rows(found.result),
                "classes": results.class_rows(found),
                "confusion": results.confusion_tables(found),
                "front": front,
                "chart": results.front_chart(front) if front else None,
                "picks": results.picks(folder),
                "has_prompt": (folder / WEIGHTS).is_file(),
                "command": results.command_line(found.config, folder),
                "resume": results.resume_line(found.config, folder),
            }
        return pages.show("images.html" if part else "result.html", **content)

    def answers(request: Request) -> Response:
        folder = studio.catalogue.folder(request.path_params["name"])
        config = read_config(folder)
        generation, shown = studio.examples.of_running(folder, config)
        return pages.show(
            "examples.html", name=request.path_params["name"], part="train", shown=shown, generation=generation
        )

    def front(request: Request) -> Response:
        folder, given = studio.catalogue.folder(request.path_params["name"]), request.query_params.get("i")
        found = results.ordered_front(studio.stored(folder).front)
        if given is None:
            return JSONResponse(results.front_facts(found, folder))
        chosen = found[_index(given, len(found))]
        config = read_config(folder)
        shown = studio.examples.under(folder, config, prompt_of(config, chosen.contexts))
        return pages.show(
            "examples.html", name=request.path_params["name"], part="test", shown=shown, generation=chosen.generation
        )

    def image(request: Request) -> Response:
        given, name = request.query_params, request.path_params.get("name")
        row = int(given["row"]) if given.get("row", "").isdigit() else -1
        if name is None:
            images = studio.shelf.data(given.get("data", "demo")).train
        else:
            config = read_config(studio.catalogue.folder(name))
            images = studio.shelf.images_of(config, "train" if given.get("part") == "train" else "test")
        content, media = thumbnail(images, row)
        return Response(content, media_type=media, headers={"cache-control": "private, max-age=3600"})

    return [
        Route("/run/{name:path}", run),
        Route("/answers/{name:path}", answers),
        Route("/front/{name:path}", front),
        Route("/image/{name:path}", image),
        Route("/image", image),
    ]


def _stream_routes(studio: Studio) -> list[Route]:
    def stream(events: AsyncIterator[str]) -> Response:
        quick = {"cache-control": "no-store", "x-accel-buffering": "no"}  # a proxy must not hold events back
        return StreamingResponse(events, media_type="text/event-stream", headers=quick)

    async def changes(request: Request) -> Response:
        seen = request.headers.get("last-event-id") or request.query_params.get("after", "")
        return stream(list_events(studio.catalogue.digest, seen))

    async def generations(request: Request) -> Response:
        name = request.path_params["name"]
        folder = studio.catalogue.folder(name)
        given = request.headers.get("last-event-id") or request.query_params.get("after", "0")

        def config() -> ConfigRecord | None:
            return read_config(folder) if (folder / CONFIG).is_file() else None

        def state() -> str:
            try:
                return studio.catalogue.row(name).state
            except UnseeError:
                return "gone"

        after = int(given) if given.isdigit() else 0
        return stream(journal_events(folder, after, state, config))

    return [Route("/events", changes), Route("/events/{name:path}", generations)]


def _action_routes(studio: Studio) -> list[Route]:
    async def act(request: Request) -> Response:
        async with request.form(max_files=0, max_fields=8) as form:
            given = {key: str(value) for key, value in form.items()}
        what, name = request.path_params["what"], given.get("run", "")
        folder = studio.catalogue.folder(name)
        row = await run_in_threadpool(studio.catalogue.row, name)
        if what == "stop":
            await run_in_threadpool(studio.queue.stop, folder)
        elif what == "resume":
            if row.busy:
                raise InputError(f"{name} is {row.state} already")
            again = (folder / CONFIG).is_file()
            job = studio.queue.of(folder)
            old = job.arguments if job is not None else ()
            if not again and not old:
                raise InputError(f"{name} has nothing to resume; start it again")
            if given.get("skip"):
                old = (*old, "--skip-bad-images")
            studio.queue.add(folder, ["resume", str(folder), *studio.options] if again else old)
        elif what == "drop":
            if (folder / CONFIG).is_file():
                raise InputError(f"{name} has a folder with results; delete {folder} yourself if you do not want it")
            await run_in_threadpool(studio.queue.drop, folder)
            return RedirectResponse("/", 303)
        elif what == "audit":
            studio.queue.add(folder, ["audit", str(folder), *studio.options])
        elif what == "pick":
            front = results.ordered_front(read_front(folder / FRONT))
            chosen = front[_index(given.get("i", ""), len(front))]
            await run_in_threadpool(lambda: pick_prompt(folder, None, **results.bounds(chosen)))
        else:
            raise HTTPException(404)
        await run_in_threadpool(studio.queue.tick)
        end = "#picked" if what == "pick" else ""
        return RedirectResponse(f"/run/{quote(name)}{end}", 303)

    return [Route("/do/{what}", act, methods=["POST"])]


def _download_routes(studio: Studio) -> list[Route]:
    async def download(request: Request) -> Response:
        name, what = request.path_params["name"], request.query_params.get("what", "prompt")
        folder = studio.catalogue.folder(name)
        title = name.replace("/", "-")
        if what == "report":
            return await _report(folder, title)
        content, file = await run_in_threadpool(_file, studio, folder, what, title)
        kind = "application/zip" if file.endswith(".zip") else "text/csv; charset=utf-8"
        return Response(content, media_type=kind, headers=_attached(file))

    return [Route("/download/{name:path}", download)]


def _file(studio: Studio, folder: Path, what: str, title: str) -> tuple[bytes, str]:
    if what == "prompt":
        load_prompt(folder)  # says what is wrong with a damaged one
        out = io.BytesIO()
        with zipfile.ZipFile(out, "w") as archive:
            for part in (WEIGHTS, CARD):
                archive.write(folder / part, f"{title}/{part}")
        return out.getvalue(), f"{title}.zip"
    tables = {"classes": results.class_shares, "answers": results.answers_table}
    if what not in tables:
        raise InputError(f"there is no download called {what!r}")
    return as_csv(tables[what](studio.stored(folder))).encode(), f"{title}-{what}.csv"


async def _report(folder: Path, title: str) -> Response:
    """The page of `unsee report`, made by a process of its own: its charts would stay in this one's memory."""
    place = tempfile.TemporaryDirectory()
    out = Path(place.name) / "report.html"
    words = (sys.executable, "-m", "unsee", "report", str(folder), "-o", str(out))
    child = await asyncio.create_subprocess_exec(*words, stderr=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE)
    _, said = await child.communicate()
    if child.returncode or not out.is_file():
        place.cleanup()
        raise RunError(f"the report could not be made: {said.decode(errors='replace').strip()[-300:]}")
    return FileResponse(out, filename=f"{title}.html", background=BackgroundTask(place.cleanup))


def _attached(file: str) -> dict[str, str]:
    return {"content-disposition": f"attachment; filename*=utf-8''{quote(file, safe='')}"}


def _command(arguments: Sequence[str]) -> str:
    return shlex.join(["unsee", *arguments])


def _index(text: str, count: int) -> int:
    if not text.isdigit() or int(text) >= count:
        raise InputError("there is no such trade-off; load the page again")
    return int(text)
