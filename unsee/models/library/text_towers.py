"""A text tower that `transformers` runs, with contexts put in at the token embeddings.

A hook on the embedding layer replaces the rows where contexts go; everything else is the library's own forward, so
positions, masks and pooling are what the model's authors wrote. Two things are cut, and neither changes an answer:
the population goes through in large batches, and a tower that masks its padding gets none, because prompts of one
length go together. A tower that looks at its padding (SigLIP's) gets exactly the padding it was trained with.
`siglip_text.py` also leaves out what SigLIP's last layer computes for nothing.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from unsee.errors import InputError
from unsee.models.fast.text_tower import CHUNK_BYTES
from unsee.models.placement import check_context_room, check_position, contexts_before

Read = Callable[[Any, Tensor, Tensor | None], Tensor]  # model, ids (n, s), mask or None -> embeddings (n, E)
# Where contexts go in the batch that is being computed: columns (n, m) and contexts (n, m, D). A context variable,
# because a service may ask from several threads at once.
_PLACED: ContextVar[tuple[Tensor, Tensor] | None] = ContextVar("placed", default=None)


@dataclass(frozen=True)
class TokenLayout:
    """How token ids become the tower's input."""

    limit: int  # positions
    placeholder: int  # an id that stands where contexts go; neither padding nor special
    pad: int | None = None  # every text is padded with it to the limit; None: the tower masks padding, so none is added
    left: bool = False  # padding comes first
    masked: bool = False  # the tower is told which positions are padding


def whole_forward(model: Any, ids: Tensor, mask: Tensor | None) -> Tensor:
    """Text embeddings by the library's own forward, not normalised. (n, s) -> (n, E)."""
    given = {} if mask is None else {"attention_mask": mask}
    return features_of(model.get_text_features(input_ids=ids, **given))


@dataclass(frozen=True, eq=False)
class LibraryTower:
    """The text half of a `transformers` dual encoder."""

    model: Any  # with `get_text_features`
    table: torch.nn.Embedding
    layout: TokenLayout
    recipe: str
    row_bytes: int  # of memory that one position takes
    read: Read = whole_forward

    @property
    def tokens(self) -> Tensor:
        """The table of token embeddings, (V, D)."""
        return self.table.weight

    @property
    def width(self) -> int:
        return self.table.weight.shape[1]

    @property
    def limit(self) -> int:
        """How many positions a text may have, start and end tokens included."""
        return self.layout.limit

    @property
    def causal(self) -> bool:
        """Every id of a text counts."""
        return False

    def tensors(self) -> list[Tensor]:
        """Every weight, for fingerprints and for methods that train them."""
        return list(self.model.parameters())

    def trainable_copy(self) -> LibraryTower:
        """A copy whose weights can be trained without changing the original."""
        model = copy.deepcopy(self.model).requires_grad_()
        return replace(self, model=model, table=token_table(model))

    def bind(
        self, names: Sequence[Sequence[int]], sos: int | None, position: str = "end", tails: Sequence[int] = ()
    ) -> LibraryText:
        """The tower bound to class names: ids of `<class name>.` and the end token; a tail is what follows the name."""
        check_position(position)
        start = () if sos is None else (sos,)
        return LibraryText(self, tuple(map(tuple, names)), start, position, tuple(tails))

    def encode(self, texts: Sequence[Sequence[int]]) -> Tensor:
        """Normalised embeddings of whole texts, start and end tokens included. -> (n, E)."""
        none = self.table.weight.new_empty(1, 0, self.width)
        prompts = arrange(self.layout, [(text, 0, 0) for text in texts], 0, none.device)
        return self.run(prompts, none)[0]

    def run(self, prompts: Sequence[Prompts], contexts: Tensor) -> Tensor:
        """Normalised embeddings of every prompt under every candidate. (b, m, D) -> (b, C, E)."""
        b, parts, rows = len(contexts), [], []
        for group in prompts:
            count, length = group.ids.shape
            step = max(1, CHUNK_BYTES // (self.row_bytes * length))
            pairs = torch.arange(b * count, device=contexts.device)
            found = [self._forward(group, contexts, part // count, part % count) for part in torch.split(pairs, step)]
            parts.append(torch.cat(found).view(b, count, -1))
            rows.append(group.rows)
        return torch.cat(parts, dim=1)[:, torch.cat(rows).argsort()]

    def _forward(self, group: Prompts, contexts: Tensor, candidate: Tensor, prompt: Tensor) -> Tensor:
        """(n,) candidates and prompts -> (n, E)."""
        mask = None if group.mask is None else group.mask[prompt]
        placed = (group.columns[prompt], contexts[candidate]) if contexts.shape[1] else None
        token = _PLACED.set(placed)
        try:
            return F.normalize(self.read(self.model, group.ids[prompt], mask), dim=-1)
        finally:
            _PLACED.reset(token)


class LibraryText:
    """Contexts (b, m, D) in, class embeddings (b, C, E) out, for fixed class names."""

    def __init__(
        self,
        tower: LibraryTower,
        names: tuple[tuple[int, ...], ...],
        start: tuple[int, ...],
        position: str,
        tails: tuple[int, ...],
    ) -> None:
        self.tower = tower
        self.position = position
        self._names, self._start, self._tails = names, start, tails
        self._prompts: dict[int, list[Prompts]] = {}

    @property
    def room(self) -> int:
        """How many contexts fit beside the start token and the longest class name."""
        return self.tower.limit - len(self._start) - max(map(len, self._names))

    def embeddings(self, contexts: Tensor) -> Tensor:
        """Normalised class embeddings under each candidate. (b, m, D) -> (b, C, E)."""
        check_context_room(contexts.shape, self.tower.width, self.tower.limit, self.room, "special tokens")
        return self.tower.run(self.prompts(contexts.shape[1]), contexts)

    def prompts(self, m: int) -> list[Prompts]:
        """The prompts with room for m contexts, prepared once."""
        if m not in self._prompts:
            before = contexts_before(self.position, m)
            spare, start = [self.tower.layout.placeholder] * m, len(self._start)
            texts = []
            for name, tail in zip(self._names, self._tails, strict=True):
                cut = len(name) - tail
                ids = [*self._start, *spare[:before], *name[:cut], *spare[before:], *name[cut:]]
                texts.append((ids, start, start + before + cut if before < m else start))
            self._prompts[m] = arrange(self.tower.layout, texts, before, self.tower.tokens.device, m)
        return self._prompts[m]


@dataclass(frozen=True, eq=False)
class Prompts:
    """Prompts of one length."""

    rows: Tensor  # (c,) their numbers
    ids: Tensor  # (c, s)
    columns: Tensor  # (c, m) where contexts go
    mask: Tensor | None  # (c, s), 0 at padding


def arrange(
    layout: TokenLayout, texts: Sequence[tuple[Sequence[int], int, int]], before: int, device: torch.device, m: int = 0
) -> list[Prompts]:
    """Texts as the tower takes them: padded as it was trained, or else those of one length together.

    A text is its ids and where contexts are: the first `before` of m from one column on, the others from another.
    """
    lengths: dict[int, list[int]] = {}
    for row, (ids, _, _) in enumerate(texts):
        lengths.setdefault(layout.limit if layout.pad is not None else len(ids), []).append(row)
    made = []
    for length, rows in lengths.items():
        filled, columns, masks = [], [], []
        for row in rows:
            ids, first, second = texts[row]
            padding = [layout.pad or 0] * (length - len(ids))
            shift = len(padding) if layout.left else 0
            filled.append([*padding, *ids] if layout.left else [*ids, *padding])
            masks.append([0] * shift + [1] * len(ids) + [0] * (len(padding) - shift))
            columns.append([shift + first + i for i in range(before)] + [shift + second + i for i in range(m - before)])
        mask = torch.tensor(masks, device=device) if layout.masked and layout.pad is not None else None
        made.append(
            Prompts(
                torch.tensor(rows, device=device),
                torch.tensor(filled, device=device),
                torch.tensor(columns, device=device, dtype=torch.long).view(len(rows), m),
                mask,
            )
        )
    return made


def place_contexts(table: torch.nn.Module) -> None:
    """Lets this embedding layer put contexts where the current batch wants them."""
    table.register_forward_hook(_place)


def _place(_: torch.nn.Module, __: object, output: Tensor) -> Tensor | None:
    placed = _PLACED.get()
    if placed is None:
        return None
    columns, contexts = placed
    rows = torch.arange(len(output), device=output.device)[:, None]
    return output.index_put((rows, columns), contexts.to(output.dtype))


def token_table(model: torch.nn.Module) -> torch.nn.Embedding:
    """The token embeddings of a text tower, whatever the library calls them."""
    for name, module in model.named_modules():
        if isinstance(module, torch.nn.Embedding) and name.rpartition(".")[2] in ("token_embedding", "word_embeddings"):
            return module
    raise InputError("this text tower has no layer of token embeddings")


def features_of(output: Any) -> Tensor:
    """`transformers` gives the features themselves, or, since 5.0, with what else was computed."""
    found: Tensor = output if isinstance(output, Tensor) else output.pooler_output
    return found
