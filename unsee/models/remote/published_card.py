"""What a service publishes about its model, checked: its client believes nothing."""

from __future__ import annotations

from typing import Annotated

import numpy as np
from pydantic import AfterValidator, BaseModel, Field, StrictInt, ValidationError, field_validator, model_validator

from unsee.errors import ModelError
from unsee.types import Card

# What contexts start from where the server withholds the token statistics: no offset, and the standard deviation that
# CLIP's token table is initialised with. The search adapts its step size to the true scale.
UNKNOWN_STD = 0.02
NEEDED = ("body_bytes", "answer_bytes", "images", "files", "candidates")


def _printable(text: str) -> str:
    if not text.isprintable():
        raise ValueError("has characters that cannot be printed")
    return text


Text = Annotated[str, Field(min_length=1, max_length=1000), AfterValidator(_printable)]


class PublishedCard(BaseModel):
    """The answer of /v1/card."""

    name: Text
    fingerprint: Text
    width: Annotated[StrictInt, Field(ge=1, le=2**16)]
    token_limit: Annotated[StrictInt, Field(ge=3, le=2**16)]
    token_mean: list[Annotated[float, Field(ge=-1e6, le=1e6)]] | None
    token_std: Annotated[float, Field(gt=0, le=1e6)] | None
    answers: Annotated[str, Field(pattern=r"^(all|label|top-[0-9]{1,6})$")]
    role: Annotated[str, Field(pattern=r"^(classify|tune|operate)$")] = "tune"
    limits: dict[str, Annotated[StrictInt, Field(ge=1, le=2**50)]]

    @field_validator("limits")
    @classmethod
    def _has_all(cls, limits: dict[str, int]) -> dict[str, int]:
        if missing := [name for name in NEEDED if name not in limits]:
            raise ValueError(f"{missing[0]} is missing")
        return limits

    @model_validator(mode="after")
    def _fits(self) -> PublishedCard:
        if self.token_mean is not None and len(self.token_mean) != self.width:
            raise ValueError("token_mean has another length than width")
        return self

    def card(self, url: str) -> Card:
        """The card as every model has one."""
        mean = np.zeros(self.width) if self.token_mean is None else self.token_mean
        return Card(
            name=self.name,
            fingerprint=self.fingerprint,
            width=self.width,
            token_mean=np.asarray(mean, dtype=np.float32),
            token_std=self.token_std or UNKNOWN_STD,
            token_limit=self.token_limit,
            address=url,
        )


def read_card(content: bytes, url: str) -> PublishedCard:
    """The card in these bytes; ModelError says what is wrong with it."""
    try:
        return PublishedCard.model_validate_json(content)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        where = ".".join(str(part)[:40] for part in first["loc"])
        said = f"{where}: {first['msg'][:100]}" if where else first["msg"][:100]
        raise ModelError(f"{url}: its card is not that of unsee serve ({said})") from None
