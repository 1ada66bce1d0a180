"""The routes: HTTP in, HTTP out. What is done is in `service.py`, who may ask in `guard.py`."""

from __future__ import annotations

import asyncio
import binascii
import hashlib
import json
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import TypeVar

from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ValidationError
from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from unsee.models.remote.wire import IDEMPOTENCY_KEY, RULE, SHA256, image_digest
from unsee.serve import schema
from unsee.serve.access_log import ServiceLog
from unsee.serve.accounts import ResponseBody
from unsee.serve.guard import GONE, PIECE, App, Guard, Scope
from unsee.serve.health import Health
from unsee.serve.keys import ANYONE, Client, Keys
from unsee.serve.limits import TOKEN, Refused, check_image_digest, check_prompt_name
from unsee.serve.merging import Asker
from unsee.serve.meters import Meters
from unsee.serve.policy import check_role, prompt_owner
from unsee.serve.service import Service
from unsee.versions import version

M = TypeVar("M", bound=BaseModel)
EXAMPLE_CARD = {"name": "mini", "width": 128, "token_limit": 32, "answers": "all"}
LABELS = [{"label": "cat", "score": 0.9}, {"label": "dog", "score": 0.1}]
CLASSIFY = {"inputs": schema.PIXEL, "parameters": {"candidate_labels": ["cat", "dog"]}}


def make_app(
    service: Service,
    keys: Keys | None,
    meters: Meters | None = None,
    log: ServiceLog | None = None,
    anyone: Client = ANYONE,
    hang_up: Callable[[], None] = lambda: None,
) -> App:
    """The service as an ASGI application; without keys, anyone may ask. hang_up is called on SIGHUP."""
    seen, written, health = meters or Meters(), log or ServiceLog(), Health(service)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        health.start()
        with suppress(ValueError, RuntimeError, NotImplementedError):  # signals reach the main thread only
            asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, hang_up)
        written.event("started", {"model": service.model.card.fingerprint})
        try:
            yield
            written.event("stopped")
            await health.stop()
        finally:
            await service.close()
            seen.close()
            written.close()

    def watch(scope: Scope, status: int, seconds: float) -> None:
        seen.request(scope, status, seconds)
        written.request(scope, status, seconds)

    api = FastAPI(
        title="unsee",
        version=version(),
        description="A vision-language model as a black box: images and prompts in, confidences out.",
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        redirect_slashes=False,
    )
    _add_model_routes(api, service)
    _add_image_routes(api, service)
    _add_prompt_routes(api, service)
    _add_health_routes(api, health, seen)
    api.add_exception_handler(HTTPException, _http_error)
    api.add_exception_handler(Refused, _refuse)
    api.add_exception_handler(ClientDisconnect, _refuse)
    api.add_exception_handler(Exception, _refuse)
    _add_document(api)
    seen.watch_queue(service.queue)
    api.state.service = service
    fingerprint = service.model.card.fingerprint
    return Guard(api, keys, service.accounts, service.limits, service.memory, watch, anyone, fingerprint)


def _add_model_routes(api: FastAPI, service: Service) -> None:
    @api.get("/v1/card", responses=schema.json_response(EXAMPLE_CARD), summary="What is published about the model")
    async def card(request: Request) -> Response:
        return _json(service.card(_client(request)))

    @api.get("/v1/usage", responses=schema.json_response({"spent": {}, "limits": {}}), summary="What you have spent")
    async def usage(request: Request) -> Response:
        return _json(await service.accounts.usage(_client(request)))

    @api.post(
        "/v1/confidences",
        responses=schema.message_response("Array confidences (b, n, C), or of the top k with array top."),
        openapi_extra=schema.with_key(schema.message_body(schema.CONFIDENCES_FORM)),
        summary="Confidences of a set of images under contexts",
    )
    async def confidences(request: Request) -> Response:
        return _answer(request, await service.confidences(_client(request), await request.body(), _key(request)))

    @api.post(
        "/v1/classify",
        responses=schema.json_response(LABELS),
        openapi_extra=schema.with_key(schema.json_body(schema.ClassifyRequest, CLASSIFY)),
        summary="Zero-shot image classification, in the form of Hugging Face's task",
    )
    async def classify(request: Request) -> Response:
        client = _client(request)
        given, image = await _read_question(request, service, Asker(client.name))
        prompt = None if given.prompt is None else check_prompt_name(given.prompt)
        return _answer(
            request,
            await service.classify(
                client, image, given.candidate_labels, given.hypothesis_template, prompt, _key(request)
            ),
        )


def _add_image_routes(api: FastAPI, service: Service) -> None:
    @api.post(
        "/v1/images",
        responses=schema.json_response({"images": schema.HASH, "count": 1, "encoded": 1, "known": 0}),
        openapi_extra=schema.images_body(),
        summary="Store a set of images: files, or the hashes of files that are stored",
    )
    async def images(request: Request) -> Response:
        client = _client(request)
        if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "multipart/form-data":
            body = await request.body()
            read = partial(_read_digests, body, service.limits.values, service.limits.images)
            kept = await service.keep_set(client, await service.beside_if_large(Asker(client.name), len(body), read))
            if "missing" in kept:
                error = Refused(404, "images", "not all of these images are stored").as_dict()
                return await service.beside_if_large(Asker(client.name), len(body), partial(_json, error | kept, 404))
            return _json(kept)
        as_set = {"yes": True, "no": False}.get(request.query_params.get("set", "yes"))
        if as_set is None:
            raise Refused(422, "set", "must be yes or no")
        files = await _files(request, service.limits.files)
        try:
            async with asyncio.timeout(service.limits.seconds):
                return _json(await service.keep_images(client, files, as_set))
        except TimeoutError:
            message = f"not encoded within {service.limits.seconds:g} s; send the rest again"
            raise Refused(503, "time", message, retry_after=1) from None

    @api.get("/v1/images/{images}", responses=schema.json_response({"count": 1}), summary="Is this set stored?")
    async def image_set(request: Request, images: str) -> Response:
        return _json({"images": images, "count": await service.count_images(_client(request), images)})

    @api.delete("/v1/images/{images}", status_code=204, responses=schema.RESPONSES, summary="Delete a set of images")
    async def delete_images(request: Request, images: str) -> Response:
        await service.delete_set(_client(request), images)
        return Response(status_code=204)


def _add_prompt_routes(api: FastAPI, service: Service) -> None:
    @api.get("/v1/prompts", responses=schema.json_response({"pets": {}}), summary="Your deployed prompts")
    async def prompts(request: Request) -> Response:
        found = await service.prompts(prompt_owner(_client(request)))
        return _json({name: card.model_dump(mode="json") for name, card in found.items()})

    @api.put(
        "/v1/prompts/{name}",
        responses=schema.json_response({}),
        openapi_extra=schema.message_body(schema.PROMPT_FORM),
        summary="Deploy a forgetting prompt",
    )
    async def deploy(request: Request, name: str) -> Response:
        checked = check_prompt_name(name)
        return _json(
            (await service.deploy(prompt_owner(_client(request)), checked, await request.body())).model_dump(
                mode="json"
            )
        )

    @api.get("/v1/prompts/{name}", responses=schema.json_response({}), summary="The card of a deployed prompt")
    async def prompt(request: Request, name: str) -> Response:
        card, _ = await service.prompt(prompt_owner(_client(request)), check_prompt_name(name))
        return _json(card.model_dump(mode="json"))

    @api.delete("/v1/prompts/{name}", status_code=204, responses=schema.RESPONSES, summary="Withdraw a prompt")
    async def withdraw(request: Request, name: str) -> Response:
        await service.withdraw(prompt_owner(_client(request)), check_prompt_name(name))
        return Response(status_code=204)


def _add_health_routes(api: FastAPI, health: Health, meters: Meters) -> None:
    @api.get("/healthz", responses=schema.json_response({"alive": True}), summary="Does the process answer?")
    async def alive(request: Request) -> Response:
        return _json({"alive": True})

    @api.get("/readyz", responses=schema.json_response({"ready": True}), summary="Would a request be taken now?")
    async def ready(request: Request) -> Response:
        health.check()
        return _json({"ready": True})

    @api.get("/metrics", summary="For Prometheus", responses=schema.RESPONSES)
    async def metrics(request: Request) -> Response:
        _client(request)
        return Response(meters.page(), media_type="text/plain; version=0.0.4; charset=utf-8")


def _add_document(api: FastAPI) -> None:
    document = json.dumps(api.openapi()).encode()  # made once

    @api.get("/openapi.json", include_in_schema=False)
    async def openapi(request: Request) -> Response:
        return Response(document, media_type="application/json")


def _client(request: Request) -> Client:
    """Who is asking, if their role has this route."""
    found: Client = request.scope["state"]["client"]
    check_role(found, request.scope["route"].path)
    return found


def _key(request: Request) -> str | None:
    key = request.headers.get(IDEMPOTENCY_KEY)
    if key is not None and not TOKEN.fullmatch(key):
        raise Refused(422, IDEMPOTENCY_KEY, "must be 1 to 128 letters, digits, dots, dashes, colons or underscores")
    return key


def _parse(model: type[M], body: bytes, values: int) -> M:
    if _count_values(body) > values:  # reading millions of them takes seconds
        raise Refused(422, "body", f"holds more than the {values} values allowed")
    try:
        return model.model_validate_json(body)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        field = ".".join(str(part) for part in first["loc"]) or "body"
        raise Refused(422, field, first["msg"][:200]) from None


def _read_digests(body: bytes, values: int, most: int) -> list[str]:
    listed = _parse(schema.ImageList, body, values).images
    if not listed or len(listed) > most:
        raise Refused(422, "images", f"must be 1 to {most} hashes, not {len(listed)}")
    return [check_image_digest(digest, f"images[{i}]") for i, digest in enumerate(listed)]


def _count_values(body: bytes) -> int:
    parts = [body[start : start + PIECE] for start in range(0, len(body), PIECE)]
    return sum(part.count(sign) for part in parts for sign in (b",", b"[", b"{"))


def _read_classify(body: bytes, values: int) -> tuple[schema.ClassifyParameters, bytes]:
    asked = _parse(schema.ClassifyRequest, body, values)
    try:
        return asked.parameters, _decode_base64(asked.inputs)
    except (binascii.Error, ValueError):
        raise Refused(422, "inputs", "must be an image file in base64") from None


async def _read_question(request: Request, service: Service, asker: Asker) -> tuple[schema.ClassifyParameters, bytes]:
    """What is asked about which image file; the body, which is larger than that, is not kept."""
    body = b"".join([piece async for piece in request.stream()])
    if len(body) > service.limits.classify_bytes:
        raise Refused(413, "inputs", f"are larger than the {service.limits.classify_bytes} bytes allowed")
    return await service.beside_if_large(asker, len(body), partial(_read_classify, body, service.limits.values))


def _decode_base64(text: str) -> bytes:
    """The bytes in this text; in pieces, because no other thread runs while one is decoded."""
    starts = range(0, len(text), PIECE)
    parts = [binascii.a2b_base64(text[start : start + PIECE], strict_mode=True) for start in starts]
    if any(len(part) != PIECE // 4 * 3 for part in parts[:-1]):
        raise ValueError("padding within the text")
    return b"".join(parts)


async def _files(request: Request, limit: int) -> list[tuple[str, bytes]]:
    """The files of an upload with their hashes, in order."""
    async with request.form(max_files=limit, max_fields=8) as form:
        found = []
        for name, part in form.multi_items():
            if name != "images" or not isinstance(part, UploadFile):
                raise Refused(422, "images", "every part of the form must be a file called images")
            content = await part.read()
            found.append((image_digest(content), content))
            await asyncio.sleep(0)  # others have their turn
    if not found:
        raise Refused(422, "images", "no file was given")
    return found


def _answer(request: Request, answer: ResponseBody) -> Response:
    request.scope["state"]["charged"] = answer.charged
    digest = answer.digest or hashlib.sha256(answer.content).hexdigest()
    headers = {SHA256: digest} | ({RULE: answer.note} if answer.note else {})
    return Response(answer.content, media_type=answer.media, headers=headers)


def _json(content: object, status: int = 200) -> Response:
    body = json.dumps(content).encode()
    headers = {SHA256: hashlib.sha256(body).hexdigest()}
    return Response(body, status_code=status, media_type="application/json", headers=headers)


async def _refuse(request: Request, error: Exception) -> Response:
    refused = error if isinstance(error, Refused) else Refused(500, "server", "the service failed; its log says why")
    if isinstance(error, ClientDisconnect):  # nobody reads it but the logs
        refused = Refused(GONE, "body", "the client left")
    request.scope["state"]["refused"] = refused.field
    return JSONResponse(refused.as_dict(), status_code=refused.status, headers=refused.headers())


async def _http_error(request: Request, error: Exception) -> Response:
    """Errors of the framework: an unknown path or method, or a form that cannot be parsed."""
    status = error.status_code if isinstance(error, HTTPException) else 400
    field = {404: "path", 405: "method"}.get(status, "body")
    message = str(error.detail)[:200] if isinstance(error, HTTPException) else "cannot be read"
    headers = dict(error.headers or {}) if isinstance(error, HTTPException) else {}
    return JSONResponse(Refused(status, field, message).as_dict(), status_code=status, headers=headers)
