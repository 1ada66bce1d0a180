"""A model as its own library runs it, to be compared with: full forward, its padding, its image processor.

Contexts are written into rows of the token table that no prompt uses, so nothing of how `unsee` puts them in is shared.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from unsee.data.class_names import in_prompt
from unsee.data.images import as_rgb
from unsee.errors import InputError
from unsee.models.fast.checkpoint_record import Checkpoint, TowerSizes
from unsee.models.fast.checkpoints import find_folder, read_checkpoint
from unsee.models.fast.vision import VisionTransformer
from unsee.models.library.dual_encoder import DUAL_ENCODERS, Loaded, load_with_library, model_type
from unsee.models.library.image_towers import LibraryVision
from unsee.models.library.text_towers import token_table
from unsee.models.local import LocalModel
from unsee.types import Floats


@dataclass(frozen=True, eq=False)
class Reference:
    """The library's model; `said` tells what is compared with what."""

    loaded: Loaded
    said: str
    ours: LocalModel  # lends ids and pixels where the folder has no tokenizer or image processor
    limit: int

    def answers(self, ids: Sequence[Sequence[int]], images: Sequence[Image.Image]) -> Floats:
        """Confidences by the model's whole forward. -> (n, C)."""
        with torch.inference_mode():
            output = self.loaded.model(**self.texts(ids), **self._pixels(images))
            found: Floats = output.logits_per_image.float().softmax(dim=-1).numpy()
            return found

    def under(self, contexts: Floats, names: Sequence[str], images: Sequence[Image.Image]) -> Floats:
        """Confidences with contexts (m, D) before the names. -> (n, C)."""
        table = token_table(self.loaded.model)
        texts = [self.ids(f"{in_prompt(name)}.") for name in names]
        spare = self.spare(texts, len(contexts))
        at = 0 if self.ours.tokenizer.sos is None else 1
        kept = table.weight.data[spare].clone()
        try:
            table.weight.data[spare] = torch.from_numpy(contexts)
            return self.answers([[*text[:at], *spare, *text[at:]] for text in texts], images)
        finally:
            table.weight.data[spare] = kept

    def ids(self, text: str) -> list[int]:
        """A whole text as the library tokenizes it."""
        tokenizer = self.loaded.tokenizer
        if tokenizer is not None:
            return [int(i) for i in tokenizer(text)["input_ids"]]
        start = [] if self.ours.tokenizer.sos is None else [self.ours.tokenizer.sos]
        return [*start, *self.ours.tokenizer.ids(text), self.ours.tokenizer.eot]

    def spare(self, texts: Sequence[Sequence[int]], count: int) -> list[int]:
        """Ids that no text uses and that mean nothing special."""
        tokenizer = self.loaded.tokenizer
        special = set() if tokenizer is None else set(tokenizer.all_special_ids)
        used = {token for text in texts for token in text} | special | {0, self.ours.tokenizer.eot}
        found = [i for i in range(token_table(self.loaded.model).num_embeddings) if i not in used][:count]
        if len(found) < count:
            raise InputError(f"the model has only {len(found)} tokens that the names do not use; {count} are needed")
        return found

    def texts(self, ids: Sequence[Sequence[int]]) -> Mapping[str, Tensor]:
        """Padded as the library's users do: to the full length, or to the longest where padding is masked."""
        kind = self.loaded.model.config.model_type
        length = self.limit if DUAL_ENCODERS.get(kind, True) else max(map(len, ids))
        tokenizer = self.loaded.tokenizer
        if tokenizer is None:  # as OpenAI's own code pads
            return {"input_ids": torch.tensor([[*text, *[0] * (length - len(text))] for text in ids])}
        given = {"input_ids": [list(text) for text in ids]}
        padded = tokenizer.pad(given, padding="max_length", max_length=length, return_tensors="pt")
        wanted = [name for name in ("input_ids", "attention_mask") if name in tokenizer.model_input_names]
        return {name: padded[name] for name in wanted}

    def _pixels(self, images: Sequence[Image.Image]) -> Mapping[str, Tensor]:
        processor = self.loaded.image_processor
        if processor is not None:
            return dict(processor(images=[as_rgb(image) for image in images], return_tensors="pt"))
        prepared = np.stack([self.ours.encoder.prepare(image) for image in images])
        return {"pixel_values": torch.from_numpy(prepared)}


def open_reference(name: str, ours: LocalModel) -> Reference:
    """The model of this name in its own library; InputError if there is none."""
    if not isinstance(ours.encoder, (VisionTransformer, LibraryVision)):
        raise InputError(
            f"{ours.card.name!r} is not a form that transformers runs, so there is nothing to compare with"
        )
    import transformers

    library = f"transformers {transformers.__version__}"
    folder = find_folder(name)
    if folder is not None and model_type(folder) in ("clip", "metaclip_2", *DUAL_ENCODERS):
        loaded = load_with_library(folder, whole=model_type(folder) in DUAL_ENCODERS)
        missing = [part for part, there in _parts(loaded).items() if there is None]
        lent = f"; its folder has no {' and no '.join(missing)}, so unsee's is used" if missing else ""
        return Reference(loaded, f"{library}: {type(loaded.model).__name__} on {folder}{lent}", ours, ours.tower.limit)
    loaded = Loaded(_clip(read_checkpoint(name)), None, None)
    said = f"{library}: CLIPModel with the weights, ids and pixels as unsee reads them (it has no reader for this form)"
    return Reference(loaded, said, ours, ours.tower.limit)


def _parts(loaded: Loaded) -> dict[str, Any]:
    return {"tokenizer": loaded.tokenizer, "image processor": loaded.image_processor}


def _clip(checkpoint: Checkpoint) -> Any:
    """`transformers`' CLIPModel with a checkpoint's weights."""
    from transformers import CLIPConfig, CLIPModel

    def sizes(part: TowerSizes) -> dict[str, int | float | str]:
        return {
            "hidden_size": part.width,
            "num_hidden_layers": part.layers,
            "num_attention_heads": part.heads,
            "intermediate_size": part.hidden,
            "hidden_act": part.activation,
            "layer_norm_eps": part.eps,
        }

    text = sizes(checkpoint.text) | {
        "vocab_size": checkpoint.vocabulary,
        "max_position_embeddings": checkpoint.positions,
        "eos_token_id": 2 if checkpoint.eos is None else checkpoint.eos,
    }
    vision = sizes(checkpoint.vision) | {"image_size": checkpoint.image, "patch_size": checkpoint.patch}
    with torch.random.fork_rng():
        model = CLIPModel(CLIPConfig(text_config=text, vision_config=vision, projection_dim=checkpoint.embedding))
    model.load_state_dict(checkpoint.state, strict=False)
    return model.eval().requires_grad_(False)
