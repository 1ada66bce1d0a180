"""Writes CLIP's tokenizer as a `tokenizer.json`: `python -m training.clip_tokenizer bpe_simple_vocab_16e6.txt.gz OUT`.

The vocabulary is the file of that name in https://github.com/openai/CLIP (MIT; its terms are in LICENSES/). Texts are
made small letters and split as OpenAI's `simple_tokenizer.py` does.
"""

from __future__ import annotations

import gzip
import json
import sys
from collections.abc import Iterable
from pathlib import Path

from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, processors

from unsee.models.fast.tokenizers import CLIP

MERGES = 49152 - 256 - 2
WORDS = r"'s|'t|'re|'ve|'m|'ll|'d|\p{L}+|\p{N}|[^\s\p{L}\p{N}]+"
SPECIAL = ("<|startoftext|>", "<|endoftext|>")


def make_tokenizer(vocabulary: Path) -> Tokenizer:
    """The tokenizer of CLIP's list of merges."""
    lines = gzip.decompress(vocabulary.read_bytes()).decode().split("\n")[1 : MERGES + 1]
    merges = [(left, right) for left, right in (line.split() for line in lines)]
    letters = _letters()
    tokens = [*letters, *(f"{letter}</w>" for letter in letters), *(left + right for left, right in merges), *SPECIAL]
    return _tokenizer(tokens, merges)


def _tokenizer(tokens: list[str], merges: list[tuple[str, str]]) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE({token: i for i, token in enumerate(tokens)}, merges, end_of_word_suffix="</w>"))
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(WORDS), "removed", invert=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    return tokenizer


def first_tokens(count: int, without: Iterable[str] = ()) -> Tokenizer:
    """CLIP's tokenizer cut to its first merges, `count` tokens in all; the same every time, and nothing is learned.

    Its merges stand in the order of how often they were used, so a cut list spells rarer words in pieces. The words of `without`
    become no token of their own: they are spelled in pieces too.
    """
    whole = json.loads(CLIP.read_text(encoding="utf-8"))["model"]
    letters = _letters()
    tokens = [*letters, *(f"{letter}</w>" for letter in letters)]
    known, unwanted, merges = set(tokens), {f"{word}</w>" for word in without}, []
    for left, right in whole["merges"]:
        if len(known) + len(SPECIAL) == count:
            break
        if left in known and right in known and left + right not in unwanted:
            merges.append((left, right))
            known.add(left + right)
    tokens += [left + right for left, right in merges]
    tokenizer = _tokenizer([*tokens, *SPECIAL], merges)
    start, end = (tokenizer.token_to_id(token) for token in SPECIAL)
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{SPECIAL[0]} $A {SPECIAL[1]}", special_tokens=[(SPECIAL[0], start), (SPECIAL[1], end)]
    )
    return tokenizer


def _letters() -> list[str]:
    """A visible letter for each byte, in CLIP's order: bytes that are visible themselves come first."""
    visible = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    return [*map(chr, visible), *(chr(256 + i) for i in range(256 - len(visible)))]


if __name__ == "__main__":
    Path(sys.argv[2]).write_text(make_tokenizer(Path(sys.argv[1])).to_str(), encoding="utf-8")
