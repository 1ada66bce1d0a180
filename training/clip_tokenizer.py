"""Writes CLIP's tokenizer as a `tokenizer.json`: `python -m training.clip_tokenizer bpe_simple_vocab_16e6.txt.gz OUT`.

The vocabulary is the file of that name in https://github.com/openai/CLIP (MIT; its terms are in LICENSES/). Texts are
made small letters and split as OpenAI's `simple_tokenizer.py` does.
"""

from __future__ import annotations

import gzip
import sys
from pathlib import Path

from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers

MERGES = 49152 - 256 - 2
WORDS = r"'s|'t|'re|'ve|'m|'ll|'d|\p{L}+|\p{N}|[^\s\p{L}\p{N}]+"
SPECIAL = ("<|startoftext|>", "<|endoftext|>")


def make_tokenizer(vocabulary: Path) -> Tokenizer:
    """The tokenizer of CLIP's list of merges."""
    lines = gzip.decompress(vocabulary.read_bytes()).decode().split("\n")[1 : MERGES + 1]
    merges = [(left, right) for left, right in (line.split() for line in lines)]
    letters = _letters()
    tokens = [*letters, *(f"{letter}</w>" for letter in letters), *(left + right for left, right in merges), *SPECIAL]
    tokenizer = Tokenizer(models.BPE({token: i for i, token in enumerate(tokens)}, merges, end_of_word_suffix="</w>"))
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(WORDS), "removed", invert=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    return tokenizer


def _letters() -> list[str]:
    """A visible letter for each byte, in CLIP's order: bytes that are visible themselves come first."""
    visible = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    return [*map(chr, visible), *(chr(256 + i) for i in range(256 - len(visible)))]


if __name__ == "__main__":
    Path(sys.argv[2]).write_text(make_tokenizer(Path(sys.argv[1])).to_str(), encoding="utf-8")
