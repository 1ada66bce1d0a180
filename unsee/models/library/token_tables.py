"""The tokenizer in a checkpoint's folder, as `transformers` loads it."""

from __future__ import annotations

import hashlib
from typing import Any

from unsee.errors import ModelError

PROBE = "a"  # any text: what is put around it shows the special tokens


class LibraryTokenizer:
    """Token ids as the library gives them, without the special tokens around a text, which are kept apart."""

    def __init__(self, tokenizer: Any, source: str) -> None:
        self._tokenizer = tokenizer
        bare, whole = self.ids(PROBE), [int(i) for i in tokenizer(PROBE)["input_ids"]]
        at = next((i for i in range(len(whole)) if whole[i : i + len(bare)] == bare), None) if bare else None
        if at is None:
            raise ModelError(f"{source}: its tokenizer gives {bare} for {PROBE!r} alone, but {whole} in a whole text")
        start, end = whole[:at], whole[at + len(bare) :]
        if len(start) > 1 or len(end) != 1:
            raise ModelError(f"{source}: its tokenizer puts {len(start)} ids before a text and {len(end)} after it")
        self.sos: int | None = start[0] if start else None
        self.eot = end[0]
        pad = tokenizer.pad_token_id
        self.pad: int | None = None if pad is None else int(pad)
        self.left = tokenizer.padding_side == "left"
        self.masked = "attention_mask" in tokenizer.model_input_names
        self.longest = int(tokenizer.model_max_length)
        self.special = {int(i) for i in tokenizer.all_special_ids}
        self.fingerprint = self._hash()

    @property
    def size(self) -> int:
        """One more than the highest id."""
        return 1 + int(max(self._tokenizer.get_vocab().values()))

    def ids(self, text: str) -> list[int]:
        """Ids of the text, without start and end."""
        return [int(i) for i in self._tokenizer(text, add_special_tokens=False)["input_ids"]]

    def placeholder(self) -> int:
        """An id that is no special token, to stand where contexts go."""
        return next(i for i in range(self.size) if i not in self.special and i != self.pad)

    def _hash(self) -> str:
        """Differs between tokenizers that may give different ids."""
        backend = getattr(self._tokenizer, "backend_tokenizer", None)  # a tokenizer in Python has none
        rules = backend.to_str() if backend is not None else repr(sorted(self._tokenizer.get_vocab().items()))
        kept = (type(self._tokenizer).__name__, self.sos, self.eot, self.pad, self.left, self.masked)
        digest = hashlib.blake2b(repr(kept).encode(), digest_size=16)
        digest.update(rules.encode())
        return digest.hexdigest()
