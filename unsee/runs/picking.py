"""Another trade-off of a finished run: a prompt from its Pareto front, without one more query."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from unsee.errors import RunError
from unsee.files import write_bytes
from unsee.methods.pareto import pick
from unsee.runs.folder import CONFIG, FRONT, PICK, read_config
from unsee.runs.front import read_front
from unsee.runs.prompt import load_prompt
from unsee.runs.records import PickRecord, write_record


def pick_prompt(run: str | Path, out: str | Path | None = None, **wanted: float) -> tuple[PickRecord, Path]:
    """Writes the prompt that forgets most among those with at least this acc_mem (or err_for, or entropy).

    Into a folder of its own, inside the run's unless `out` is given; `classify`, `evaluate` and `audit` take it. The
    run itself stays as it is.
    """
    run = Path(run)
    read_config(run)
    prompt = load_prompt(run)
    front = read_front(run / FRONT)
    if not front:
        raise RunError(f"{run}: kept no validated candidates (no {FRONT}), so there is nothing to pick from")
    chosen = pick(front, **wanted)
    name = "-".join(f"{key.replace('_', '-')}-{value:g}" for key, value in wanted.items())
    folder = run / "picked" / name if out is None else Path(out)
    if folder.resolve() == run.resolve():
        raise RunError(f"{folder}: would overwrite the run's own prompt; name another folder")
    replace(prompt, contexts=chosen.contexts).save(folder)
    write_bytes(folder / CONFIG, (run / CONFIG).read_bytes())
    record = PickRecord(
        run=str(run),
        asked=wanted,
        generation=chosen.generation,
        candidate=chosen.index,
        loss=chosen.loss,
        valid=chosen.valid,
        trade_off=chosen.trade_off,
    )
    write_record(folder / PICK, record)
    return record, folder
