"""Writes the table of all settings to docs/settings.md: python docs/settings_page.py."""

from __future__ import annotations

import inspect
from pathlib import Path

from unsee.settings import EXTENDABLE, SettingFacts, list_settings
from unsee.tuner import PromptTuner

PAGE = Path(__file__).parent / "settings.md"
# Not for --set: they are options and arguments of their own, with the same names and defaults.
OWN = {
    name: str(argument.default)
    for name, argument in inspect.signature(PromptTuner).parameters.items()
    if argument.default is not argument.empty
}
HEAD = f"""# Settings

All settings of a run, with their bounds and defaults. `--set NAME=VALUE` sets any of them but
{", ".join(f"`{name}`" for name in OWN)}, which are options of their own (`--method` and so on):

```sh
unsee forget demo --forget cat,dog --set contexts=8 --set projection=normalized --set validate=generation
```

From Python, `unsee.PromptTuner` takes them as keywords. "By preset" means that the default depends on preset, method,
model and data ([sizes](methods.md#settings)). A preset or a method may also replace a default in this table: preset
`tuned`, for example, has `serve=mask-top-digit`. `config.json` in the run folder has every setting that a run used.

| setting | what may be given | default | what it does |
|---|---|---|---|
"""
TAIL = f"""
A run can be resumed with larger {" or ".join(f"`{name}`" for name in EXTENDABLE)}. All other settings are part of
[what makes a run the same](runs.md#what-makes-a-run-the-same).

This page is written by `python docs/settings_page.py`.
"""


def page() -> str:
    """The page as Markdown."""
    return HEAD + "".join(map(_row, list_settings())) + TAIL


def _row(one: SettingFacts) -> str:
    default = OWN.get(one.name, one.default)
    return f"| `{one.name}` | {one.kind} | {default} | {one.about} |\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
