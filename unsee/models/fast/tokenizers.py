"""Tokenizers: text to token ids, with CLIP's own vocabulary or the one in a checkpoint's folder."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path

from unsee.errors import ModelError

CLIP = Path(__file__).parents[2] / "assets" / "clip" / "tokenizer.json"  # written by training/clip_tokenizer.py
CLIP_VOCABULARY = 49408


class FileTokenizer:
    """A `tokenizer.json` of the tokenizers library."""

    def __init__(self, path: Path, sos: str = "<|startoftext|>", eot: str = "<|endoftext|>") -> None:
        from tokenizers import Tokenizer

        try:
            self._tokenizer = Tokenizer.from_file(str(path))
        except Exception as error:  # the library raises bare Exception
            raise ModelError(f"{path}: not a tokenizer file ({error})") from None
        self._tokenizer.no_padding()
        self._tokenizer.no_truncation()
        self.sos = self._id(path, sos)
        self.eot = self._id(path, eot)
        self.fingerprint = _hash(path.read_bytes(), repr((self.sos, self.eot)).encode())

    def ids(self, text: str) -> list[int]:
        """Ids of the text, without start and end."""
        return list(self._tokenizer.encode(text, add_special_tokens=False).ids)

    def _id(self, path: Path, token: str) -> int:
        found = self._tokenizer.token_to_id(token)
        if found is None:
            raise ModelError(f"{path}: has no {token} token")
        return int(found)


class ClipTokenizer:
    """CLIP's byte-pair vocabulary, for checkpoints without tokenizer files (OpenAI's, OpenCLIP's)."""

    fingerprint = f"clip-bpe-{CLIP_VOCABULARY}"

    def __init__(self) -> None:
        self._file = _clip_file()
        self.sos, self.eot = self._file.sos, self._file.eot

    def ids(self, text: str) -> list[int]:
        """Ids of the text, without start and end."""
        return self._file.ids(text.lower())  # Python's small letters, as OpenAI's code has them: Σ at the end is ς


class VocabularyTokenizer:
    """A `vocab.json` and `merges.txt`, as older Hugging Face folders have."""

    def __init__(self, folder: Path) -> None:
        from transformers import CLIPTokenizer

        try:
            self._tokenizer = CLIPTokenizer.from_pretrained(folder, local_files_only=True)
        except Exception as error:  # transformers raises many kinds
            reason = str(error).strip().partition("\n")[0]
            raise ModelError(f"{folder}: vocab.json and merges.txt cannot be read ({reason})") from None
        self.sos = int(self._tokenizer.bos_token_id)
        self.eot = int(self._tokenizer.eos_token_id)
        files = [
            path.read_bytes() if path.is_file() else b"" for path in (folder / "vocab.json", folder / "merges.txt")
        ]
        added = sorted(self._tokenizer.get_added_vocab().items())
        self.fingerprint = _hash(*files, repr((self.sos, self.eot, added)).encode())

    def ids(self, text: str) -> list[int]:
        """Ids of the text, without start and end."""
        return [int(i) for i in self._tokenizer.encode(text, add_special_tokens=False)]


def find_tokenizer(folder: Path | None, vocabulary: int) -> ClipTokenizer | FileTokenizer | VocabularyTokenizer:
    """The folder's own tokenizer, or CLIP's where there is none and the vocabulary fits."""
    if folder is not None and (folder / "tokenizer.json").is_file():
        return FileTokenizer(folder / "tokenizer.json")
    if folder is not None and (folder / "vocab.json").is_file():
        return VocabularyTokenizer(folder)
    if vocabulary != CLIP_VOCABULARY:
        raise ModelError(f"{folder}: no tokenizer.json, and {vocabulary} tokens are not CLIP's {CLIP_VOCABULARY}")
    return ClipTokenizer()


@cache
def _clip_file() -> FileTokenizer:
    """The file of this package, read once: that takes longer than loading a small model's weights."""
    return FileTokenizer(CLIP)


def _hash(*parts: bytes) -> str:
    digest = hashlib.blake2b(digest_size=16)
    for part in parts:
        digest.update(len(part).to_bytes(8, "little") + part)
    return digest.hexdigest()
