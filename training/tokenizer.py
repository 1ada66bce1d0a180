"""The tokenizer: lower-cased byte-level BPE in CLIP's manner, learned from captions, glosses and the names.

Every token knows whether it ends a word, and words never look at their neighbours: "cat." gives the same tokens with or
without a context in front of it, which prompt tuning relies on.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from itertools import chain
from pathlib import Path

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

SOS = "<|startoftext|>"
EOT = "<|endoftext|>"
VOCABULARY = 8192
WORD_PATTERN = r"'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+"


def train_tokenizer(texts: Iterable[str], path: Path) -> Tokenizer:
    """Learn the merges, write tokenizer.json and return it."""
    tokenizer = Tokenizer(models.BPE(end_of_word_suffix="</w>"))
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFC(), normalizers.Lowercase()])
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(WORD_PATTERN), behavior="removed", invert=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("</w>", " "), decoders.ByteLevel(), decoders.Strip(" ", 0, 1)]
    )
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=[SOS, EOT],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        end_of_word_suffix="</w>",
        show_progress=False,
    )
    # every byte that can end a word must be a token with the end-of-word mark, or words ending in it would lose it
    endings = [*map(chr, range(33, 127)), *map(chr, range(0x4E00, 0x4E40))]
    tokenizer.train_from_iterator(chain(texts, endings), trainer)
    tokenizer.model = _numbered(tokenizer)
    start, end = tokenizer.token_to_id(SOS), tokenizer.token_to_id(EOT)
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{SOS} $A {EOT}", special_tokens=[(SOS, start), (EOT, end)]
    )
    tokenizer.save(str(path))
    return tokenizer


def _numbered(tokenizer: Tokenizer) -> models.BPE:
    """The same tokens with numbers that are the same every time; the trainer numbers single letters in random order."""
    merges = [(first, second) for first, second in json.loads(tokenizer.to_str())["model"]["merges"]]
    joined = dict.fromkeys(first + second for first, second in merges)
    special = (SOS, EOT)
    letters = sorted(set(tokenizer.get_vocab()) - set(joined) - set(special), key=lambda token: (len(token), token))
    numbers = {token: i for i, token in enumerate((*special, *letters, *joined))}
    return models.BPE(vocab=numbers, merges=merges, end_of_word_suffix="</w>")


def glosses(wordnet: Path) -> list[str]:
    """Return the definitions in a WordNet `dict` folder, examples left out, in file order."""
    found = []
    for part in ("noun", "verb", "adj", "adv"):
        for line in (wordnet / f"data.{part}").read_text(encoding="latin-1").splitlines():
            if line.startswith("  ") or "|" not in line:
                continue
            found.append(line.split("|", 1)[1].split(";")[0].strip())
    return found
