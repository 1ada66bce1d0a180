"""The service's JSON, and what its OpenAPI document says about the binary routes."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from unsee.models.remote.wire import ACKNOWLEDGE, IDEMPOTENCY_KEY, MEDIA

Json = dict[str, Any]
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR4nGP4//8/AAX+Av4N70a4AAAAAElFTkSuQmCC"  # one, white
HASH = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"


class ClassifyParameters(BaseModel):
    """Labels to choose from, and the text or deployed prompt to put them into."""

    model_config = ConfigDict(extra="ignore", strict=True)

    candidate_labels: list[str] | None = Field(None, description="Left out: the labels of the deployed prompt.")
    hypothesis_template: str | None = Field(None, description='With {} for the label; "a photo of a {}." if left out.')
    prompt: str | None = Field(None, description="Name of a deployed prompt, used in place of the template.")


class ClassifyRequest(BaseModel):
    """An image, in the form of Hugging Face's zero-shot image classification."""

    model_config = ConfigDict(extra="ignore", strict=True)

    inputs: str = Field(description="The image file, in base64.")
    parameters: ClassifyParameters


class ImageList(BaseModel):
    """Images that were uploaded before, by the SHA-256 of their files, in order."""

    model_config = ConfigDict(extra="ignore", strict=True)

    images: list[str]


ERROR: Json = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["field", "message"],
            "properties": {"field": {"type": "string"}, "message": {"type": "string"}},
        }
    },
}
RESPONSES: dict[int | str, Json] = {
    "4XX": {"description": "Refused: the field at fault and why.", "content": {"application/json": {"schema": ERROR}}},
    503: {"description": "Not answered in time; try again.", "content": {"application/json": {"schema": ERROR}}},
}
CONFIDENCES_FORM = """A safetensors file. Array `contexts`: float32 (candidates, tokens, width). Metadata, all text:
`images` (the hash of an image set), `class_names` (a JSON list), optionally `form` (`confidences`, or `logs` for their
logarithms), and `template` with `applies_to` (a JSON list): names the contexts are put before, the others stay under
the template. Without `contexts`, all names are put into `template`."""
PROMPT_FORM = (
    "A safetensors file. Array `contexts`: float32 (tokens, width). Metadata: `card`, the text of prompt.json."
)


def json_body(model: type[BaseModel], example: Json) -> Json:
    """A JSON request body for the OpenAPI document."""
    schema = model.model_json_schema()
    _inline(schema, schema.pop("$defs", {}))
    return _body({"application/json": {"schema": schema, "example": example}})


def message_body(about: str) -> Json:
    """A safetensors request body for the OpenAPI document."""
    body = _body({MEDIA: {"schema": {"type": "string", "format": "binary"}}})
    body["requestBody"]["description"] = " ".join(about.split())
    return body


def images_body() -> Json:
    """The two forms of an upload: files, or hashes of files that are there."""
    files = {"type": "array", "items": {"type": "string", "format": "binary"}}
    schema = {"type": "object", "required": ["images"], "properties": {"images": files}}
    body = json_body(ImageList, {"images": [HASH]})
    body["requestBody"]["content"]["multipart/form-data"] = {"schema": schema}
    about = "no: store the files, and make a set of them later, from their hashes."
    choice = {"type": "string", "enum": ["yes", "no"]}
    body["parameters"] = [{"name": "set", "in": "query", "required": False, "description": about, "schema": choice}]
    return body


def with_key(body: Json) -> Json:
    """A body of a route that charges: it takes an idempotency key."""
    about = "The same key again gets the same answer and is charged once."
    schema = {"type": "string", "pattern": "^[A-Za-z0-9._:-]{1,128}$"}
    key = {"name": IDEMPOTENCY_KEY, "in": "header", "required": False, "description": about, "schema": schema}
    heard = f"Keys whose answers have arrived, separated by commas, in any later request: {ACKNOWLEDGE}."
    return body | {"parameters": [key], "description": heard}


def message_response(about: str) -> dict[int | str, Json]:
    """A safetensors answer for the OpenAPI document."""
    content = {MEDIA: {"schema": {"type": "string", "format": "binary"}}}
    return RESPONSES | {200: {"description": about, "content": content}}


def json_response(example: object, status: int = 200) -> dict[int | str, Json]:
    """A JSON answer for the OpenAPI document."""
    content = {"application/json": {"schema": {}, "example": example}}
    return RESPONSES | {status: {"description": "Done.", "content": content}}


def _body(content: Json) -> Json:
    return {"requestBody": {"required": True, "content": content}}


def _inline(schema: Any, defs: Json) -> None:
    """Puts referenced parts in place, so that a body needs no components."""
    if isinstance(schema, dict):
        for key, value in schema.items():
            if isinstance(value, dict) and "$ref" in value:
                schema[key] = defs[value["$ref"].rsplit("/", 1)[1]]
            _inline(schema[key], defs)
    elif isinstance(schema, list):
        for value in schema:
            _inline(value, defs)
