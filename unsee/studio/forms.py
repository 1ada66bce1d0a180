"""The routes that take something from a visitor: a new run, images, one image to try, the key."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from pathlib import Path
from urllib.parse import quote

from starlette.concurrency import run_in_threadpool
from starlette.datastructures import UploadFile
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Route

from unsee.errors import ImageError, InputError, UnseeError
from unsee.methods.presets import PRESETS
from unsee.methods.registry import METHODS
from unsee.runs.given import stable_name
from unsee.runs.prompt import WEIGHTS
from unsee.studio.new_run import (
    NUMBERS,
    class_cards,
    default_words,
    foresee,
    known_classes,
    pasted_path,
    plan,
    read_wanted,
)
from unsee.studio.result import picks
from unsee.studio.routes import Studio
from unsee.studio.trial import classify, open_image
from unsee.studio.uploads import refuse_damaged

WRONG_KEY = 1.0  # seconds that a wrong key takes
FILES_AT_ONCE = 500


def form_routes(studio: Studio) -> list[Route]:
    """All of them."""
    return [*_new_routes(studio), *_upload_routes(studio), *_try_routes(studio), *_enter_routes(studio)]


def _new_routes(studio: Studio) -> list[Route]:
    pages = studio.pages

    def new(request: Request) -> Response:
        given = dict(request.query_params)
        return _page(given, [], "")

    def _page(given: dict[str, str], ticked: list[str], problem: str) -> Response:
        folder = pasted_path(given.get("folder", ""))
        name = stable_name(folder or given.get("data") or "demo")
        cards = []
        try:
            cards = class_cards(studio.shelf.data(name))
        except (UnseeError, OSError) as error:
            problem = problem or str(error)
        return pages.show(
            "new.html",
            400 if problem else 200,
            data=name,
            model=given.get("model") or "mini",
            cards=cards,
            ticked=ticked,
            given=given,
            problem=problem,
            sets=[row["name"] for row in studio.data_sets if row["found"]],
            missing=[row for row in studio.data_sets if not row["found"]],
            sent=[str(path) for path in studio.uploads.folders()],
            methods={name: method.about for name, method in METHODS.items()},
            default=default_words(len(cards)),
            presets=PRESETS,
            numbers=NUMBERS,
        )

    async def start(request: Request) -> Response:
        given, ticked = await _fields(request)
        try:
            wanted = await run_in_threadpool(read_wanted, studio.shelf, given, ticked)
            taken = [job.folder for job in studio.queue.jobs() if not job.ended]
            out, arguments = await run_in_threadpool(
                plan, studio.shelf, wanted, studio.catalogue.root, taken, studio.options
            )
        except UnseeError as error:
            return await run_in_threadpool(_page, given, ticked, str(error))
        studio.queue.add(out, arguments)
        await run_in_threadpool(studio.queue.tick)
        return RedirectResponse(f"/run/{quote(out.name)}", 303)

    async def cost(request: Request) -> Response:
        given, ticked = await _fields(request)
        try:
            price = float(given.get("price", "").strip() or 0)
        except ValueError:
            raise InputError(f"the price is a number, not {given['price']!r}") from None
        wanted = await run_in_threadpool(read_wanted, studio.shelf, given, ticked)
        return JSONResponse(await run_in_threadpool(foresee, studio.shelf, wanted, price))

    def known(request: Request) -> Response:
        data = studio.shelf.data(request.query_params.get("data", "demo"))
        model = stable_name(request.query_params.get("model", "mini"))
        found, unreadable = known_classes(studio.shelf, data, model)
        return JSONResponse({"known": found, "unreadable": unreadable})

    return [
        Route("/new", new, methods=["GET"]),
        Route("/new", start, methods=["POST"]),
        Route("/forecast", cost, methods=["POST"]),
        Route("/known", known),
    ]


async def _fields(request: Request) -> tuple[dict[str, str], list[str]]:
    """The fields of a form, and the classes that are ticked."""
    async with request.form(max_files=0, max_fields=20_000) as form:
        given = {key: str(value) for key, value in form.items()}
        return given, [str(value) for value in form.getlist("forget")]


def _upload_routes(studio: Studio) -> list[Route]:
    async def upload(request: Request) -> Response:
        """A zip as the whole body, or some files of a folder as a form."""
        given = request.query_params
        title = given.get("title", "images")
        if given.get("kind") == "zip":
            place = await _zip(request, studio, title)
        else:
            place = studio.uploads.begun(given["to"]) if given.get("to") else studio.uploads.begin(title)
            try:
                await _files(request, studio, place)
            except BaseException:
                shutil.rmtree(place, ignore_errors=True)
                raise
        return JSONResponse({"to": place.name, "data": str(place)})

    return [Route("/upload", upload, methods=["POST"])]


async def _zip(request: Request, studio: Studio, title: str) -> Path:
    with tempfile.TemporaryDirectory() as folder:
        archive = Path(folder) / "sent.zip"
        with archive.open("wb") as out:
            async for piece in request.stream():
                out.write(piece)
        return await run_in_threadpool(studio.uploads.add_zip, archive, title)


async def _files(request: Request, studio: Studio, place: Path) -> None:
    async with request.form(max_files=FILES_AT_ONCE, max_fields=FILES_AT_ONCE + 1) as form:
        names = [str(name) for name in form.getlist("name")]
        files = [file for file in form.getlist("file") if isinstance(file, UploadFile)]
        bad: list[ImageError] = []
        for name, file in zip(names, files, strict=True):
            try:
                await run_in_threadpool(studio.uploads.add_file, place, name, await file.read())
            except ImageError as error:
                bad.append(error)
        refuse_damaged(bad)


def _try_routes(studio: Studio) -> list[Route]:
    def prompts() -> list[str]:
        found = []
        for row in studio.catalogue.rows():
            folder = studio.catalogue.root / row.name
            if row.state == "finished" and (folder / WEIGHTS).is_file():
                found += [row.name, *(f"{row.name}/picked/{name}" for name, _ in picks(folder))]
        return found

    def show(request: Request) -> Response:
        known = prompts()
        return studio.pages.show("try.html", prompts=known, chosen=request.query_params.get("run", ""))

    async def answer(request: Request) -> Response:
        async with request.form(max_files=1, max_fields=8) as form:
            file, name = form.get("image"), str(form.get("run", ""))
            if not isinstance(file, UploadFile):
                raise InputError("no image was given; choose, drop or paste one")
            content, labels = await file.read(), str(form.get("labels", ""))
        folder = studio.catalogue.folder(name)

        image = await run_in_threadpool(open_image, content, file.filename or "image")
        return JSONResponse(await run_in_threadpool(classify, studio.shelf, folder, image, labels))

    return [Route("/try", show, methods=["GET"]), Route("/try", answer, methods=["POST"])]


def _enter_routes(studio: Studio) -> list[Route]:
    async def enter(request: Request) -> Response:
        async with request.form(max_files=0, max_fields=2) as form:
            given = str(form.get("key", ""))
        if studio.visitors.is_key(given):
            return studio.visitors.let_in(RedirectResponse("/", 303))
        await asyncio.sleep(WRONG_KEY)
        return studio.pages.refuse(401, "That is not the key.")

    return [Route("/enter", enter, methods=["POST"])]
