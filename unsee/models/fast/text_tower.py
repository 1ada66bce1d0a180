"""CLIP's text tower, computing only what reaches the class embeddings; exact, not approximate.

The tower is causal and read at the end-of-text token (EOT), so for prompts
`[SOS] ctx_1 … ctx_m <class name>. [EOT]`:

* nothing after EOT is computed, and names are packed by length instead of padded;
* `[SOS]` is the same for every prompt: its keys and values are computed once per model;
* the contexts come before every name: their keys and values, once per candidate, serve all classes;
* in the first layer the names' queries, keys and values do not depend on the contexts: once per binding;
* in the last layer only EOT is computed; everything else only lends its keys and values.

A population is one batch. All rows of a step, contexts and names alike, are in one matrix, so each
linear map is one large product; only attention looks at who is who. Works under autograd (white-box
baselines need gradients) and in inference mode.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor

from unsee.errors import InputError
from unsee.models.placement import check_context_room, check_position, contexts_before

CHUNK_BYTES = 64 * 2**20  # of one step; also about where larger batches stop being faster on a CPU
BLOCK_ROWS = 64  # of names that attend together; more hide more from one another, fewer make small products


@dataclass(frozen=True, eq=False)
class Layer:
    """The weights of one pre-norm transformer block; queries, keys and values in one matrix."""

    norm1: tuple[Tensor, Tensor]
    qkv: tuple[Tensor, Tensor]  # (3 D, D), queries already scaled by head_dim ** -0.5
    out: tuple[Tensor, Tensor]
    norm2: tuple[Tensor, Tensor]
    fc1: tuple[Tensor, Tensor]
    fc2: tuple[Tensor, Tensor]

    def tensors(self) -> list[Tensor]:
        return [t for pair in (self.norm1, self.qkv, self.out, self.norm2, self.fc1, self.fc2) for t in pair]


@dataclass(frozen=True, eq=False)
class TextTower:
    """Weights and sizes of a CLIP text tower."""

    tokens: Tensor  # (V, D)
    positions: Tensor  # (P, D)
    layers: tuple[Layer, ...]
    norm: tuple[Tensor, Tensor]
    projection: Tensor  # (E, D)
    heads: int
    activation: str  # "gelu" or "quick_gelu"
    eps: float

    @property
    def width(self) -> int:
        return self.tokens.shape[1]

    @property
    def limit(self) -> int:
        """How many positions a text may have, start and end tokens included."""
        return self.positions.shape[0]

    @property
    def causal(self) -> bool:
        """Ids after the end token cannot matter."""
        return True

    @property
    def recipe(self) -> str:
        """What changes answers besides the weights."""
        return f"{self.heads}|{self.activation}|{self.eps}"

    def tensors(self) -> list[Tensor]:
        """Every weight, for fingerprints and for methods that train them."""
        own = [self.tokens, self.positions, *self.norm, self.projection]
        return own + [t for layer in self.layers for t in layer.tensors()]

    def trainable_copy(self) -> TextTower:
        """A copy whose weights can be trained without changing the original."""

        def free(t: Tensor) -> Tensor:
            return t.detach().clone().requires_grad_()

        def pair(p: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
            return free(p[0]), free(p[1])

        def layer(x: Layer) -> Layer:
            return Layer(pair(x.norm1), pair(x.qkv), pair(x.out), pair(x.norm2), pair(x.fc1), pair(x.fc2))

        return replace(
            self,
            tokens=free(self.tokens),
            positions=free(self.positions),
            layers=tuple(layer(x) for x in self.layers),
            norm=pair(self.norm),
            projection=free(self.projection),
        )

    def bind(
        self, suffixes: Sequence[Sequence[int]], sos: int | None, position: str = "end", tails: Sequence[int] = ()
    ) -> BoundText:
        """The tower bound to class names. suffixes: the ids of `<class name>. [EOT]`, cut after EOT.

        tails: how many of these follow each name; without them two do, the full stop and EOT.
        """
        check_position(position)
        if sos is None:
            raise InputError("CLIP's text tower needs a start token, and this tokenizer has none")
        return BoundText(self, tuple(tuple(s) for s in suffixes), sos, position, tuple(tails) or (2,) * len(suffixes))

    def encode(self, texts: Sequence[Sequence[int]]) -> Tensor:
        """Embeddings of whole texts, cut after EOT, [SOS] included. -> (n, E), each of length 1."""
        out = self.tokens.new_empty(len(texts), self.projection.shape[0])
        for rows, ids in _by_length(texts, self.tokens.device):
            x = self.tokens[ids] + self.positions[: ids.shape[1]]
            out[rows] = self.read(causal(self, x))
        return out

    def read(self, x: Tensor) -> Tensor:
        """Final norm, projection and normalisation of rows at EOT. (..., D) -> (..., E)."""
        x = F.layer_norm(x, (self.width,), *self.norm, self.eps)
        return F.normalize(F.linear(x, self.projection), dim=-1)

    def qkv(self, layer: Layer, x: Tensor, which: slice = slice(0, 3)) -> Tensor:
        """Queries, keys and values of rows, or some of the three. (r, D) -> (r, 3, heads, D / heads)."""
        part = slice(which.start * self.width, which.stop * self.width)
        weight, bias = layer.qkv
        x = F.linear(F.layer_norm(x, (self.width,), *layer.norm1, self.eps), weight[part], bias[part])
        return x.view(len(x), which.stop - which.start, self.heads, self.width // self.heads)

    def finish(self, layer: Layer, x: Tensor, attended: Tensor) -> Tensor:
        """What follows attention in a block. (r, D), (r, D) -> (r, D)."""
        x = _add(F.linear(attended, *layer.out), x)
        hidden = F.linear(F.layer_norm(x, (self.width,), *layer.norm2, self.eps), *layer.fc1)
        return _add(F.linear(_ACTIVATIONS[self.activation](hidden), *layer.fc2), x)


def causal(tower: TextTower, x: Tensor) -> Tensor:
    """Plain causal attention over whole sequences, read at their last position. (n, s, D) -> (n, D)."""
    n, s, width = x.shape
    for layer in tower.layers:
        qkv = tower.qkv(layer, x.reshape(n * s, width)).view(n, s, 3, tower.heads, -1)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)  # (n, h, s, d)
        if layer is tower.layers[-1]:
            x, q = x[:, -1:], q[:, :, -1:]
        a = F.scaled_dot_product_attention(q, k, v, is_causal=q.shape[2] > 1, scale=1.0)
        a = a.transpose(1, 2).reshape(-1, width)
        x = tower.finish(layer, x.reshape(-1, width), a).view(n, -1, width)
    return x[:, -1]


@dataclass(frozen=True, eq=False)
class Blocks:
    """Equal blocks of whole class names: n blocks of c names each, r rows in all, no padding.

    Names of a block attend in one call, each only to itself; a block is short, so what the mask hides is little.
    """

    classes: Tensor  # (n, c) class numbers
    ids: Tensor  # (n, r)
    offsets: Tensor  # (r,) of each row within its name
    ends: Tensor  # (c,) rows that hold EOT
    seen: Tensor  # (r, r) True where a row may look


class BoundText:
    """Contexts (b, m, D) in, class embeddings (b, C, E) out, for fixed class names."""

    def __init__(
        self,
        tower: TextTower,
        suffixes: tuple[tuple[int, ...], ...],
        sos: int,
        position: str,
        tails: tuple[int, ...],
    ) -> None:
        self.tower = tower
        self.classes = len(suffixes)
        self.position = position
        self.longest = max(len(s) for s in suffixes)
        self._rows = sum(len(s) for s in suffixes)
        self._sos = sos
        self._suffixes, self._tails = suffixes, tails
        self._blocks = _cut(suffixes, tower.tokens.device)
        self._order = torch.cat([blocks.classes.flatten() for blocks in self._blocks]).argsort()
        self._prepared: dict[int, Prepared] = {}

    @property
    def room(self) -> int:
        """How many contexts fit beside [SOS] and the longest class name."""
        return self.tower.limit - 1 - self.longest

    def embeddings(self, contexts: Tensor) -> Tensor:
        """Normalised class embeddings under each candidate. (b, m, D) -> (b, C, E)."""
        check_context_room(contexts.shape, self.tower.width, self.tower.limit, self.room, "[SOS]")
        fast = self.position == "end" and len(self.tower.layers) > 1
        run = self._shared if fast else self._apart
        return torch.cat([run(part) for part in torch.split(contexts, self.chunk(contexts.shape[1]))])

    def chunk(self, m: int) -> int:
        """How many candidates one step takes at most, by the memory bound."""
        rows = m + self._rows
        if self.position != "end":
            rows += (1 + m) * self.classes
        hidden = self.tower.layers[0].fc1[0].shape[0]
        per_row = 4 * (2 * hidden + 8 * self.tower.width)  # fp32: hidden rows twice; x, qkv and copies
        return max(1, CHUNK_BYTES // (rows * per_row))

    def macs(self, m: int) -> int:
        """Multiply-adds of one candidate's linear maps, attention products aside (the fast path)."""
        d, depth = self.tower.width, len(self.tower.layers)
        rows = m + self._rows
        mlp = d * d + 2 * d * self.tower.layers[0].fc1[0].shape[0]  # with the output map of attention
        ends = self.classes * (d * d + mlp + d * self.tower.projection.shape[0])
        first = m * 3 * d * d + rows * mlp
        middle = (depth - 2) * rows * (3 * d * d + mlp)
        return first + middle + rows * 2 * d * d + ends

    def _constants(self, m: int) -> Prepared:
        if any(t.requires_grad for t in self.tower.tensors()):  # weights in training: nothing is constant
            return prepare(self.tower, self._blocks, self._sos, m)
        if m not in self._prepared:
            # Not in inference mode, so that the same constants may also serve autograd.
            with torch.inference_mode(False), torch.no_grad():
                self._prepared[m] = prepare(self.tower, self._blocks, self._sos, m)
        return self._prepared[m]

    def _shared(self, contexts: Tensor) -> Tensor:
        """The fast path: contexts first, so their keys and values serve every class."""
        tower = self.tower
        b, m, width = contexts.shape
        constants = self._constants(m)
        first, *middle, last = zip(tower.layers, constants.sos, strict=True)
        front = (contexts + tower.positions[1 : m + 1]).reshape(b * m, width)
        x = torch.cat([front, *(x0.expand(b, -1, -1).reshape(-1, width) for x0 in constants.x)])  # (rows, D)
        names = (qkv.expand(b, -1, -1, -1, -1).flatten(0, 1) for qkv in constants.qkv)
        qkv = torch.cat([tower.qkv(first[0], front), *names])  # (rows, 3, h, d)
        x = tower.finish(first[0], x, self._attend(qkv, first[1], b, m))
        for layer, sos in middle:
            x = tower.finish(layer, x, self._attend(tower.qkv(layer, x), sos, b, m))
        keys_values = tower.qkv(last[0], x, slice(1, 3))
        x = self._ends(x, b, m)
        queries = tower.qkv(last[0], x, slice(0, 1))[:, 0]
        x = tower.finish(last[0], x, self._attend_ends(queries, keys_values, last[1], b, m))
        found = torch.split(tower.read(x), [b * names.classes.numel() for names in self._blocks])
        return torch.cat([part.view(b, -1, part.shape[1]) for part in found], dim=1)[:, self._order]

    def _attend(self, qkv: Tensor, sos: Tensor, b: int, m: int) -> Tensor:
        """Contexts look at [SOS] and back; names look at all of these and at themselves. -> (rows, D)."""
        own, *parts = self._split(qkv, b, m)
        far = torch.cat([sos.expand(b, -1, -1, -1, -1), own[:, :, 1:]], dim=1)  # (b, 1 + m, 2, h, d)
        attended = [_look(own[:, :, 0], far, own.new_ones(m, m + 1, dtype=torch.bool).tril(1))]
        for part, names in zip(parts, self._blocks, strict=True):
            near = _beside(far, part[:, :, 1:])
            attended.append(_look(part[:, :, 0], near, _past(names.seen, m + 1)))
        return torch.cat(attended)

    def _attend_ends(self, q: Tensor, keys_values: Tensor, sos: Tensor, b: int, m: int) -> Tensor:
        """In the last layer only EOT looks. q (b C, h, d), keys_values (rows, 2, h, d) -> (b C, D)."""
        own, *parts = self._split(keys_values, b, m)
        far = torch.cat([sos.expand(b, -1, -1, -1, -1), own], dim=1)
        looking = torch.split(q, [b * names.classes.numel() for names in self._blocks])
        attended = []
        for part, names, ends in zip(parts, self._blocks, looking, strict=True):
            ends = ends.view(len(part), -1, *q.shape[1:])
            attended.append(_look(ends, _beside(far, part), _past(names.seen[names.ends], m + 1)))
        return torch.cat(attended)

    def _split(self, rows: Tensor, b: int, m: int) -> list[Tensor]:
        """Rows apart again: contexts (b, m, …), then each kind of block (b n, r, …)."""
        own, *parts = torch.split(rows, [b * m, *(b * names.ids.numel() for names in self._blocks)])
        blocks = zip(parts, self._blocks, strict=True)
        return [own.view(b, m, *own.shape[1:]), *(p.view(-1, names.ids.shape[1], *p.shape[1:]) for p, names in blocks)]

    def _ends(self, x: Tensor, b: int, m: int) -> Tensor:
        """The rows that hold EOT, in the blocks' order. (rows, D) -> (b C, D)."""
        parts = zip(self._split(x, b, m)[1:], self._blocks, strict=True)
        return torch.cat([part[:, names.ends].flatten(0, 1) for part, names in parts])

    def _apart(self, contexts: Tensor) -> Tensor:
        """Class name in the middle or in front: nothing is shared between classes."""
        b, m, _ = contexts.shape
        half = contexts_before(self.position, m)
        out = contexts.new_empty(b, self.classes, self.tower.projection.shape[0])
        for rows, ids in _by_length(self._suffixes, contexts.device, self._tails):
            c, cut = len(rows), ids.shape[1] - self._tails[int(rows[0])]
            name = self.tower.tokens[ids].expand(b, -1, -1, -1)  # (b, c, l, D); after the cut, mostly "." and EOT
            ctx = contexts[:, None].expand(-1, c, -1, -1)
            sos = self.tower.tokens[self._sos].expand(b, c, 1, -1)
            x = torch.cat([sos, ctx[:, :, :half], name[:, :, :cut], ctx[:, :, half:], name[:, :, cut:]], dim=2)
            x = x + self.tower.positions[: x.shape[2]]
            out[:, rows] = self.tower.read(causal(self.tower, x.flatten(0, 1))).view(b, c, -1)
        return out


@dataclass(frozen=True, eq=False)
class Prepared:
    """Everything that does not depend on a candidate, for one number of contexts."""

    x: tuple[Tensor, ...]  # of each kind of block: rows before the first layer (1, n r, D)
    qkv: tuple[Tensor, ...]  # … and their queries, keys and values there (1, n r, 3, h, d)
    sos: tuple[Tensor, ...]  # keys and values of [SOS] in each layer (1, 1, 2, h, d)


def prepare(tower: TextTower, blocks: Sequence[Blocks], sos: int, m: int) -> Prepared:
    """The constants of a binding for m contexts."""
    rows = [(tower.tokens[names.ids] + tower.positions[m + 1 + names.offsets]).flatten(0, 1) for names in blocks]
    constants = []
    x = (tower.tokens[sos] + tower.positions[0])[None]
    for layer in tower.layers:
        qkv = tower.qkv(layer, x)  # (1, 3, h, d)
        constants.append(qkv[None, :, 1:])
        x = tower.finish(layer, x, qkv[:, 2].reshape(1, -1))  # alone, [SOS] attends to itself
    return Prepared(
        tuple(x0[None] for x0 in rows), tuple(tower.qkv(tower.layers[0], x0)[None] for x0 in rows), tuple(constants)
    )


def _look(q: Tensor, keys_values: Tensor, seen: Tensor) -> Tensor:
    """Attention. q (n, r, h, d), keys_values (n, s, 2, h, d), seen (r, s) -> (n r, D)."""
    k, v = keys_values.permute(2, 0, 3, 1, 4)
    a = F.scaled_dot_product_attention(q.transpose(1, 2), k, v, attn_mask=seen, scale=1.0)
    return a.transpose(1, 2).flatten(2).flatten(0, 1)


def _beside(far: Tensor, near: Tensor) -> Tensor:
    """Keys and values of the front before those of each block. (b, f, …), (b n, r, …) -> (b n, f + r, …)."""
    n = len(near) // len(far)
    return torch.cat([far.repeat_interleave(n, dim=0) if n > 1 else far, near], dim=1)


def _past(seen: Tensor, front: int) -> Tensor:
    """The mask with the whole front in sight. (r, s) -> (r, front + s)."""
    return torch.cat([seen.new_ones(len(seen), front), seen], dim=1)


def _cut(suffixes: Sequence[Sequence[int]], device: torch.device) -> list[Blocks]:
    """Names, shortest first, cut into blocks of at most BLOCK_ROWS rows; blocks of the same make-up together."""
    blocks: list[list[int]] = []
    for row in sorted(range(len(suffixes)), key=lambda r: len(suffixes[r])):
        filled = sum(len(suffixes[r]) for r in blocks[-1]) if blocks else BLOCK_ROWS
        if filled + len(suffixes[row]) > BLOCK_ROWS:
            blocks.append([])
        blocks[-1].append(row)
    alike: dict[tuple[int, ...], list[list[int]]] = {}
    for block in blocks:
        alike.setdefault(tuple(len(suffixes[r]) for r in block), []).append(block)
    made = []
    for lengths, members in alike.items():
        offsets = torch.cat([torch.arange(length) for length in lengths])
        name = torch.repeat_interleave(torch.arange(len(lengths)), torch.tensor(lengths))
        seen = (name[:, None] == name) & (offsets[:, None] >= offsets)
        ids = torch.tensor([[token for r in block for token in suffixes[r]] for block in members])
        ends = torch.tensor(lengths).cumsum(0) - 1
        made.append(Blocks(*(t.to(device) for t in (torch.tensor(members), ids, offsets, ends, seen))))
    return made


def _by_length(
    texts: Sequence[Sequence[int]], device: torch.device, tails: Sequence[int] = ()
) -> list[tuple[Tensor, Tensor]]:
    """Texts of one length, and of one tail if they have any, together: their row numbers (c,) and ids (c, l)."""
    lengths: dict[tuple[int, int], list[int]] = {}
    for row, text in enumerate(texts):
        lengths.setdefault((len(text), tails[row] if tails else 0), []).append(row)
    return [
        (torch.tensor(rows, device=device), torch.tensor([list(texts[r]) for r in rows], device=device))
        for rows in lengths.values()
    ]


def _add(x: Tensor, y: Tensor) -> Tensor:
    return x.add_(y) if torch.is_inference_mode_enabled() else x + y


def _quick_gelu(x: Tensor) -> Tensor:
    if torch.is_inference_mode_enabled():
        return (1.702 * x).sigmoid_().mul_(x)  # one new tensor instead of three
    return torch.sigmoid(1.702 * x) * x


_ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {"gelu": F.gelu, "quick_gelu": _quick_gelu}
