"""Writes the JSON schemas of a run folder's files to docs/schemas/: python docs/schemas.py."""

from __future__ import annotations

import json
from pathlib import Path

from unsee.audit.record import AuditRecord
from unsee.runs.records import RECORDS

FOLDER = Path(__file__).parent / "schemas"


def schemas() -> dict[str, str]:
    """The schema of each file of a run folder as JSON text, by the name of the schema's own file."""
    return {
        f"{Path(name).stem}.schema.json": json.dumps(record.model_json_schema(), indent=1, ensure_ascii=False) + "\n"
        for name, record in (RECORDS | {"audit.json": AuditRecord}).items()
    }


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for name, text in schemas().items():
        (FOLDER / name).write_text(text, encoding="utf-8")
