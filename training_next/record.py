"""The training log: one JSON object a line, flushed, also printed."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class Log:
    """Appends events to a file."""

    path: Path
    begun: float = field(default_factory=time.monotonic)

    def write(self, event: str, **facts: object) -> None:
        """Append one line."""
        rounded = {k: round(v, 4) if isinstance(v, float) else v for k, v in facts.items()}
        line = json.dumps({"event": event, "seconds": round(time.monotonic() - self.begun, 1), **rounded})
        with self.path.open("a") as file:
            file.write(line + "\n")
        print(line, flush=True)
